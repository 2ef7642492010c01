"""Progress of a run on the terminal: a bar that moves, and lines that stay. Without a terminal there are no bars."""

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
        """Print a line that stays."""
        self.console.print(scrubbed(text), markup=False)

    def bar(self, name: str, total: int, done: int = 0) -> "Bar":
        """Show a new bar of `total` steps, of which `done` are done."""
        return Bar(self._bars, scrubbed(name), total, done)


class Bar:
    """The bar of one piece of work with a known number of steps."""

    def __init__(self, bars: Bars, name: str, total: int, done: int) -> None:
        self._bars, self._id = bars, bars.add_task(name, total=total, completed=done, note="")

    def step(self, note: str = "") -> None:
        """Advance the bar by one step."""
        self._bars.update(self._id, advance=1, note=note)

    def note(self, note: str) -> None:
        """Show a note beside the bar."""
        self._bars.update(self._id, note=note)

    def close(self) -> None:
        """Remove the bar."""
        self._bars.remove_task(self._id)
