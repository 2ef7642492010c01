"""Finds the evaluations that a run has stored, sorts them by age, and chooses two of them to compare."""

import os
import re
from pathlib import Path

MODES = ("greedy", "sampled")
STAGES = ("start", "clone", "iteration", "end")  # in the order in which a run evaluates


def evaluations(run: Path, mode: str) -> list[Path]:
    """The report files of a run's evaluations of one mode, oldest first."""
    files = [path for path in (run / "evaluations").glob(f"*-{mode}.json") if evaluation_rank(path) > (-1, 0)]
    return sorted(files, key=evaluation_rank)


def evaluation_rank(path: Path) -> tuple[int, int]:
    """(position in STAGES, iteration) of the evaluation in a file, to sort files by age; (-1, 0) for another file."""
    match = re.fullmatch(r"(start|clone|iteration|end)(?:-(\d+))?-(greedy|sampled)\.json", path.name)
    return (-1, 0) if match is None else (STAGES.index(match[1]), int(match[2] or 0))


def chosen_evaluations(a: Path, b: Path, mode: str | None) -> tuple[Path, Path]:
    """Two report files to compare, the later one first if they are evaluations of one run.

    Args:
        a, b: report files or run folders. Of a run folder, the last evaluation is taken.
        mode: mode of the evaluations of run folders; None: greedy if every run folder has a greedy evaluation,
            else sampled.

    Raises:
        ValueError: no mode has an evaluation in every run folder, or `mode` is given and neither path is a folder.
    """
    folders = [path for path in (a, b) if path.is_dir()]
    if mode is not None and not folders:
        raise ValueError("--mode is for run folders: leave it out, or name a run folder")
    modes = [mode] if mode is not None else list(MODES)
    both = [one for one in modes if all(evaluations(folder, one) for folder in folders)]
    if not both:
        wanted = " and ".join(dict.fromkeys(str(folder) for folder in folders))
        of_mode = f"an evaluation of one mode ({' or '.join(modes)})"
        raise ValueError(f"{wanted}: each run folder needs {of_mode}; or name two files in evaluations/")
    first, second = ((evaluations(path, both[0])[-1] if path.is_dir() else path) for path in (a, b))
    same_run = os.path.realpath(first.parent) == os.path.realpath(second.parent)
    if same_run and evaluation_rank(first) < evaluation_rank(second):
        return second, first
    return first, second
