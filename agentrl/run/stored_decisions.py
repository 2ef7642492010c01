"""Follows the decisions of a run while it trains, for the health rule on decisions that became certain too early."""

from collections.abc import Callable

from agentrl.evaluate import CERTAIN_ITERATIONS, Finding, SituationRow, certain_too_early, situation_rows
from agentrl.graph import StepGraph, read_graph
from agentrl.run.folder import RunFolder
from agentrl.types import Observation


class Decisions:
    """Keeps the decisions of the first and of the last stored iterations, and applies `certain_too_early` to them.

    Args:
        folder: the run's folder; a resumed run reads the graphs of earlier iterations there.
        situation: the environment's hook that names the situation of a decision; None takes the kind of the action.
        say: prints a note if this hook fails, or if a stored graph cannot be read. The run then continues without the
            rule.
    """

    def __init__(
        self,
        folder: RunFolder,
        situation: Callable[[Observation, str], str] | None,
        say: Callable[[str], None],
    ) -> None:
        self.folder, self.situation, self.say = folder, situation, say
        self._broken = False
        self._rows: dict[int, list[SituationRow]] | None = None  # iteration -> its rows, one per situation

    def add(self, iteration: int, graph: StepGraph) -> list[Finding]:
        """Add the graph of a stored iteration; returns the findings of the rule in the kept iterations."""
        if self._broken:
            return []
        try:
            return self._add(iteration, graph)
        except Exception as error:  # noqa: BLE001  the hook is the user's code
            self._broken = True
            self.say(
                "note: the situations of decisions cannot be read, so the health rule certain_too_early is off: "
                f"{error!r}"
            )
            return []

    def _add(self, iteration: int, graph: StepGraph) -> list[Finding]:
        if self._rows is None:
            self._rows = self._read(iteration)
        self._rows[iteration] = situation_rows(graph, iteration, self.situation)
        known = sorted(self._rows)
        for between in known[CERTAIN_ITERATIONS:-CERTAIN_ITERATIONS]:
            del self._rows[between]
        return certain_too_early([row for rows in self._rows.values() for row in rows])

    def _read(self, before: int) -> dict[int, list[SituationRow]]:
        """The situation rows that the rule needs, from the graphs stored before iteration `before`."""
        files = {int(path.stem): path for path in self.folder.stored_graphs() if int(path.stem) < before}
        known = sorted(files)
        wanted = {*known[:CERTAIN_ITERATIONS], *known[-CERTAIN_ITERATIONS:]}
        return {i: situation_rows(read_graph(files[i]), i, self.situation) for i in sorted(wanted)}
