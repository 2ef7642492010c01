"""Attacks the program for some minutes and says what broke: kills, faults, hostile actions, load, memory over time.

    python benchmarks/campaign.py kill --minutes 30      # at random moments, in writes; --resume; bytes compared
    python benchmarks/campaign.py fault --minutes 20     # environments that fail at every tenth step; hostile actions
    python benchmarks/campaign.py load --minutes 5       # up to 10,000 episodes at once in one process
    python benchmarks/campaign.py soak --minutes 15      # memory, descriptors, threads and temporary files over time

Each prints a report, writes it as JSON with --out, repeats its choices with the same --seed, cleans up after itself,
and ends with exit code 1 if anything was lost. What was found is in docs/results/reliability.md.
"""

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1])]  # `benchmarks` is a folder of the project, not installed


def main(words: list[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--minutes", type=float, default=10.0)
    shared.add_argument("--seed", type=int, default=0)
    shared.add_argument("--out", type=Path, help="a JSON file for the report")
    kill = verbs.add_parser("kill", parents=[shared])
    kill.add_argument("--only", nargs="*", default=[], help="names of configurations")
    kill.add_argument("--work", default="", help="a folder for the runs, which is kept")
    given = parser.parse_args(words)
    os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    started = time.time()

    def save(report: dict[str, Any]) -> None:
        if given.out is not None:
            given.out.write_text(json.dumps({**about(given, started), **report}, indent=1) + "\n")

    report = run(given, save)
    save(report)
    print(json.dumps(report, indent=1))
    return 1 if report["lost"] else 0


def run(given: argparse.Namespace, save: Any) -> dict[str, Any]:
    """The chosen campaign; its modules are imported here, because the rest of them is heavy."""
    from benchmarks.reliability import kills

    return kills.kill(given.minutes, given.seed, save, given.only, given.work)


def about(given: argparse.Namespace, started: float) -> dict[str, Any]:
    """What was run, where."""
    return {
        "campaign": given.verb,
        "seed": given.seed,
        "minutes": round((time.time() - started) / 60, 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    sys.exit(main())
