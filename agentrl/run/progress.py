"""What a person sees while a run works: one line that moves, and lines that stay. Silent when nobody watches."""

import sys
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from agentrl.secret import scrubbed


class Progress:
    """Bars on standard error, so that standard output stays machine-readable."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet, highlight=False, soft_wrap=not sys.stderr.isatty())
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bars = Bars(*columns, TimeRemainingColumn(), TextColumn("{task.fields[note]}"), console=self.console)
        self._bars.disable = quiet or not sys.stderr.isatty()

    def __enter__(self) -> "Progress":
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        """A line that stays."""
        self.console.print(scrubbed(text), markup=False)

    def bar(self, name: str, total: int, done: int = 0) -> "Bar":
        """A new bar."""
        return Bar(self._bars, scrubbed(name), total, done)


class Bar:
    """One task of known length."""

    def __init__(self, bars: Bars, name: str, total: int, done: int) -> None:
        self._bars, self._id = bars, bars.add_task(name, total=total, completed=done, note="")

    def step(self, note: str = "") -> None:
        """One more done."""
        self._bars.update(self._id, advance=1, note=note)

    def close(self) -> None:
        """Take the bar away."""
        self._bars.remove_task(self._id)
