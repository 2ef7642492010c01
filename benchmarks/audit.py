"""`agentrl check ENV --report FILE` on the environments of public packages, each in the Python that has the package.

    python benchmarks/audit.py toy_text reasoning_gym=PYTHON textarena=PYTHON verifiers=PYTHON
    python benchmarks/audit.py --page docs/results/audit.md

Each word is a package and the Python that has it. Each environment is checked by a process of its own. The result of
each environment is written to `--json` when it is there; environments whose result is there already are not checked
again, unless `--again` is given. Times are left out, so a second run writes the same bytes. `--only NAME` checks one
environment of the packages. `--page` writes the tables of the page again, and checks nothing.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "audit.json"
TASKSETS = ROOT / "tests" / "envs" / "foreign" / "tasksets"
TASKS = 5
LIMIT_S = 1800  # seconds that the check of one environment may take
TOY_TEXT = ("Blackjack-v1", "CliffWalking-v1", "FrozenLake-v1", "Taxi-v4")
LISTED = {  # package -> a program that prints the names of its environments
    "reasoning_gym": "from reasoning_gym.factory import DATASETS as x; "
    "print(*sorted(set(x) - {'composite'}), sep='\\n')",
    "textarena": "from textarena.envs.registration import ENV_REGISTRY as x; "
    "print(*sorted(n for n in x if not n.endswith(('-raw', '-train'))), sep='\\n')",
    "verifiers": "import pkgutil, verifiers.v1.tasksets as x; "
    "print(*sorted(m.name for m in pkgutil.iter_modules(x.__path__)), sep='\\n')",
}
MARKS = ("<!-- tables of benchmarks/audit.py -->", "<!-- end of the tables -->")
PACKAGES = {
    "toy_text": "gymnasium",
    "reasoning_gym": "reasoning-gym",
    "textarena": "textarena",
    "verifiers": "verifiers",
}


def names(package: str, python: str) -> list[str]:
    """The environments of a package."""
    if package == "toy_text":
        return list(TOY_TEXT)
    listed = subprocess.run([python, "-c", LISTED[package]], capture_output=True, text=True, check=True, cwd="/")
    return listed.stdout.split()


GIVEN = {"textarena": ["env.options.game=Wordle-v0"]}  # options that a taskset of verifiers needs


def options(package: str, name: str) -> list[str]:
    """The environment that plays it, and its options, without the Python."""
    return {
        "toy_text": ["gymnasium_text", f"env.id={name}"],
        "reasoning_gym": ["reasoning_gym", f'env.datasets=["{name}"]', "env.trust=true"],
        "textarena": ["textarena", f"env.game={name}"],
        "verifiers": ["verifiers", f"env.taskset={name}", "env.count=50", "env.split=all", *GIVEN.get(name, [])],
    }[package]


def checked(package: str, name: str, python: str) -> dict[str, Any]:
    """The result of one environment, or why it could not be checked."""
    words = [*options(package, name), *([f"env.python={python}"] if python else [])]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        command = [sys.executable, "-m", "agentrl", "check", *words, "--tasks", str(TASKS), "--report", str(out)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=LIMIT_S, cwd=TASKSETS, env=_variables()
            )
        except subprocess.TimeoutExpired:
            return {"refused": f"the check took more than {LIMIT_S} s"}
        if not out.is_file():
            return {"refused": without_paths(done.stderr.strip().rpartition("\n")[2], python)}
        return row(json.loads(out.read_text()), python)


def _variables() -> dict[str, str]:
    import os

    place = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": place}


def row(report: Mapping[str, Any], python: str) -> dict[str, Any]:
    """What is stored of a report: everything but times and paths."""
    findings = [{**one, "text": without_paths(one["text"], python)} for one in report["findings"]]
    if report["laws"][0]["state"] == "broken":
        sentence = re.sub(r"^the task list: raised \w+: | \(\w+\.py:\d+, in \w+\)$", "", findings[0]["text"])
        return {"refused": sentence, "versions": report["versions"]}
    return {
        "versions": report["versions"],
        "tasks": report["keys"],
        "compared": report["compared"],
        "walked": report["walked"],
        "laws": {one["law"]: one["state"] for one in report["laws"]},
        "findings": findings,
        "payment": report["payment"],
    }


def without_paths(text: str, python: str) -> str:
    """A message without the path of the Python and of its packages."""
    return re.sub(r"/[^\s']*/site-packages/", "", text.replace(python or "\0", "PYTHON"))


def store(file: Path, found: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the results, sorted by package and name, one line per environment."""

    def lines(rows: Mapping[str, Any]) -> str:
        return ",\n".join(
            f"{json.dumps(name)}: {json.dumps(row, sort_keys=True)}" for name, row in sorted(rows.items())
        )

    packages = [f"{json.dumps(package)}: {{\n{lines(rows)}\n}}" for package, rows in sorted(found.items())]
    file.write_text("{" + ",\n".join(packages) + "}\n")


def check_all(arguments: argparse.Namespace) -> None:
    """Check the environments of all packages on the command line, and store each result at once."""
    found = json.loads(arguments.json.read_text()) if arguments.json.is_file() else {}
    for word in arguments.packages:
        package, _, python = word.partition("=")
        python = str(Path(python).absolute()) if python else ""
        for name in [arguments.only] if arguments.only else names(package, python):
            of_package = found.setdefault(package, {})
            if name in of_package and not arguments.again:
                continue
            of_package[name] = checked(package, name, python)
            store(arguments.json, found)
            print(package, name, verdict(of_package[name]), flush=True)


def verdict(one: Mapping[str, Any]) -> str:
    """A result in a few words."""
    return f"refused: {one['refused']}" if "refused" in one else f"{len(one['findings'])} findings"


def tables(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables of the page."""
    return "\n".join([*_summary(found), *(line for package in found for line in _package(package, found[package]))])


def _summary(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "| package | environments | checked | all laws hold | with findings | not checked |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for package, rows in found.items():
        played = [one for one in rows.values() if "refused" not in one]
        clean = sum(not one["findings"] for one in played)
        version = next(iter(played))["versions"].get(PACKAGES[package], "") if played else ""
        cells = [len(rows), len(played), clean, len(played) - clean, len(rows) - len(played)]
        yield f"| {PACKAGES[package]} {version} | {' | '.join(map(str, cells))} |"
    yield ""


def _package(package: str, rows: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield f"### {PACKAGES[package]}"
    yield ""
    played = {name: one for name, one in rows.items() if "refused" not in one}
    if played:
        yield "| law | holds | does not hold | could not be tried |"
        yield "| --- | --- | --- | --- |"
        for law in next(iter(played.values()))["laws"]:
            states = Counter(one["laws"][law] for one in played.values())
            yield f"| {law} | {states['holds']} | {states['broken']} | {states['untried']} |"
        yield ""
    yield from _found(played)
    yield from _spellings([one["payment"] for one in played.values() if one["payment"]])
    yield from _refused({name: one["refused"] for name, one in rows.items() if "refused" in one})


def _found(played: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The findings; findings that differ only in the environment's name and in numbers of tasks stand in one row."""
    by: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for name, row in played.items():
        for one in row["findings"]:
            text = _cell(one["text"])
            by.setdefault((one["law"], one["fault"], masked(text, name)), []).append((name, text))
    if by:
        yield "| law | environments | finding | likely at fault |"
        yield "| --- | --- | --- | --- |"
        for (law, fault, _), alike in by.items():
            names = ", ".join(dict.fromkeys(f"`{name}`" for name, _ in alike))
            yield f"| {law} | {names} | {alike[0][1]} | {fault} |"
        yield ""


def _spellings(payments: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """In how many environments a right answer is a success in other spellings: on all tasks, on some, on none."""
    counts: dict[str, Counter[str]] = {}
    for payment in payments:
        for one in payment["spellings"]:
            share = "all" if one["count"] == one["tried"] else "some" if one["count"] else "none"
            counts.setdefault(one["name"], Counter())[share] += 1
    if counts:
        yield "| the right answer, written | environments where it wins on all tasks | on some | on none |"
        yield "| --- | --- | --- | --- |"
        for name, of in counts.items():
            yield f"| {name} | {of['all']} | {of['some']} | {of['none']} |"
        yield ""


def masked(text: str, name: str) -> str:
    """A finding without the environment's name and numbers, so that findings of variants of one game are equal."""
    base = re.sub(r"-v\d.*", "", name)
    return re.sub(r"\d+", "N", text.replace(name, "NAME").replace(base, "NAME"))


def _refused(refused: Mapping[str, str]) -> Iterator[str]:
    by: dict[str, list[str]] = {}
    for name, why in refused.items():
        by.setdefault(masked(why, name), []).append(name)
    if by:
        yield "| not checked | why |"
        yield "| --- | --- |"
        for of in by.values():
            yield f"| {', '.join(f'`{name}`' for name in of)} | {_cell(refused[of[0]])} |"
        yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def written(page: str, found: Mapping[str, Mapping[str, Any]]) -> str:
    """The page with the tables of these results."""
    head, _, rest = page.partition(MARKS[0])
    return f"{head}{MARKS[0]}\n\n{tables(found)}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}"


def main(words: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("packages", nargs="*", metavar="PACKAGE=PYTHON")
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--only", metavar="NAME")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args(words)
    if arguments.page is None:
        return check_all(arguments)
    found = json.loads(arguments.json.read_text())
    arguments.page.write_text(written(arguments.page.read_text(), found))
    return None


if __name__ == "__main__":
    main()
