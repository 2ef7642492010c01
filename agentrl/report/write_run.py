"""Writes the page of a run, with fewer steps and shorter texts if it would be larger than `MOST_BYTES`."""

from pathlib import Path

from agentrl.files import write_atomically
from agentrl.report.page import run_page
from agentrl.report.read_run import run_data
from agentrl.report.run_parts import Budget
from agentrl.report.run_schema import RunData

MOST_BYTES = 5_000_000
BUDGETS = (  # the first budget whose page fits is used; if no page fits, the last budget
    Budget(),
    Budget(last=800, other=200, evaluation=400, text_chars=4_000),
    Budget(last=300, other=60, evaluation=100, text_chars=1_000),
    Budget(last=1, other=1, evaluation=1, text_chars=200),
)


def fitting_page(run: Path, against: Path | None = None, most_bytes: int = MOST_BYTES) -> tuple[RunData, bytes]:
    """The data and the page of a run, with the first of `BUDGETS` whose page has at most `most_bytes` bytes.

    If no page is small enough, the last of `BUDGETS` is used.

    Raises:
        ValueError: a folder holds no run, or a file in it is damaged.
    """
    for number, budget in enumerate(BUDGETS):
        data = run_data(run, against, budget)
        if number:
            fewer = f"Fewer steps and shorter texts are shown, so that the page has at most {most_bytes / 1e6:g} MB."
            data = data.model_copy(update={"left_out": [*data.left_out, fewer]})
        page = run_page(data).encode()
        if len(page) <= most_bytes:
            break
    return data, page


def write_run_page(run: Path, out: Path, against: Path | None = None) -> int:
    """Write the page, whole or not at all; returns its size in bytes. Raises ValueError as `run_data` does."""
    page = fitting_page(run, against)[1]
    write_atomically(out, page)
    return len(page)
