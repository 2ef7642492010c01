"""A forecast of the time that a run still takes, from the seconds that its parts took so far.

Updates of the warm-up, iterations of training and evaluations are forecast apart. Each part is forecast from its own
newest measurements. Until the first iteration is done, its time is estimated: its episodes take as long as those of the
newest evaluation, and its update takes, per episode, as long as an update of the warm-up. The forecast reads the clock
only through the stored timings, and nothing of a run but what it prints depends on it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentrl.run.metrics import finite_number, wall_phases, wall_seconds

LATELY = 20  # number of the newest updates or iterations whose mean is the forecast of the next ones
CHANGED = 1.5  # the terminal prints a forecast again if it is this many times as long or as short as the printed one
NOTABLE_S = 60.0  # and if it differs by at least this many seconds


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """What a run will do.

    Attributes:
        updates: number of updates of the warm-up.
        clone_episodes: number of episodes per update of the warm-up.
        iterations: number of iterations of training.
        episodes: number of episodes per iteration.
        every: number of iterations between two evaluations during training; 0 for none.
        tasks, during: number of held-out tasks in an evaluation before, between and after the stages, and during
            training; 0 if not known.
        tokens, actions, dollars: the budgets of the run; 0 for none.
    """

    updates: int = 0
    clone_episodes: int = 0
    iterations: int = 0
    episodes: int = 0
    every: int = 0
    tasks: int = 0
    during: int = 0
    tokens: int = 0
    actions: int = 0
    dollars: float = 0.0


class TimeLeft(NamedTuple):
    """Seconds that the parts of a run still take; None if nothing of a part was measured that a forecast needs."""

    warm_up: float | None
    training: float | None
    evaluations: float | None

    @property
    def total(self) -> float | None:
        """Seconds to the end of the run; None if a part is not known."""
        known = [one for one in self if one is not None]
        return sum(known) if len(known) == len(self) else None

    def parts(self) -> dict[str, float]:
        """Name of the part -> seconds, without parts that are not known."""
        named = zip(("warm-up", "training", "evaluations"), self, strict=True)
        return {name: seconds for name, seconds in named if seconds is not None}


class Forecast:
    """Collects what the parts of a run took, and forecasts what is left.

    Args:
        plan: what the run will do.
    """

    def __init__(self, plan: RunPlan) -> None:
        self.plan = plan
        self.clones: deque[float] = deque(maxlen=LATELY)  # seconds of updates of the warm-up
        self.iterations: deque[float] = deque(maxlen=LATELY)
        self.cloned = self.trained = 0
        self._update_s = 0.0  # seconds of the newest update of the warm-up without its episodes
        self._used = {"generated_tokens": 0.0, "actions": 0.0, "dollars": 0.0}  # in training
        self._beside = 0.0  # dollars of evaluations and of the warm-up
        self._evaluated: dict[str, float] = {}  # name -> seconds, summed over modes
        self._episode_s: float | None = None  # seconds per episode of the newest evaluation
        self._first: dict[str, float] = {}  # stage -> seconds of its first work, which also loads and compiles

    def add(self, row: Mapping[str, Any], timing: Mapping[str, Any]) -> None:
        """Take a line of metrics and its line of timings; the work counts as done if `timing` is empty, too."""
        seconds = wall_seconds(timing) if timing else None
        self._beside += 0.0 if row["stage"] == "train" else finite_number(row.get("dollars")) or 0.0
        if row["stage"] == "eval":
            self._add_evaluation(str(row.get("name", "")), finite_number(row.get("episodes")), seconds)
        elif row["stage"] == "clone":
            self.cloned = int(row["step"]) + 1
            self._update_s = (seconds or 0.0) - wall_phases(timing).get("rollout", 0.0)
            self._measured(self.clones, "clone", seconds)
        else:
            self.cloned, self.trained = self.plan.updates, int(row["step"]) + 1
            self._measured(self.iterations, "train", seconds)
            for key in self._used:
                self._used[key] += finite_number(row.get(key)) or 0.0

    def _add_evaluation(self, name: str, episodes: float | None, seconds: float | None) -> None:
        if name == "clone":
            self.cloned = self.plan.updates
        if seconds is not None:
            self._evaluated[name] = self._evaluated.get(name, 0.0) + seconds
            self._episode_s = seconds / episodes if episodes else self._episode_s

    def _measured(self, recent: deque[float], stage: str, seconds: float | None) -> None:
        """Note the seconds; those of the stage's first work are replaced by the second, which loads nothing."""
        if seconds is None:
            return
        if len(recent) == 1 and stage not in self._first:
            self._first[stage] = recent.popleft()
        recent.append(seconds)

    def left(self) -> TimeLeft:
        """The forecast."""
        return TimeLeft(self._warm_up(), self._training(), self._evaluations())

    def _warm_up(self) -> float | None:
        due = max(0, self.plan.updates - self.cloned)
        if not due:
            return 0.0
        return due * _mean(self.clones) if self.clones else None

    def iteration_s(self) -> float | None:
        """Seconds of an iteration: measured or, before the first iteration, estimated; None if not known."""
        if self.iterations:
            return _mean(self.iterations)
        if not self.clones or self._episode_s is None or not self.plan.clone_episodes:
            return None
        return self.plan.episodes * (self._episode_s + self._update_s / self.plan.clone_episodes)

    def _iterations_left(self) -> float:
        left = float(max(0, self.plan.iterations - self.trained))
        plan = self.plan
        budgets = {"generated_tokens": plan.tokens, "actions": plan.actions, "dollars": plan.dollars}
        for key, budget in budgets.items():
            if budget and self._used[key] and self.trained:
                room = budget - self._used[key] - (self._beside if key == "dollars" else 0.0)
                left = min(left, max(0.0, room / (self._used[key] / self.trained)))
        return left

    def _training(self) -> float | None:
        left, each = self._iterations_left(), self.iteration_s()
        return 0.0 if not left else None if each is None else left * each

    def _evaluations(self) -> float | None:
        if not self._evaluated:
            return None
        named = list(self._evaluated.items())
        between = [seconds for name, seconds in named if name.startswith("iteration")]
        whole = [seconds for name, seconds in named if not name.startswith("iteration")]
        share = min(1.0, self.plan.during / self.plan.tasks) if self.plan.tasks and self.plan.during else 1.0
        whole_s = whole[-1] if whole else between[-1] / share
        between_s = between[-1] if between else whole_s * share
        last = self.trained + round(self._iterations_left())
        due = sum(1 for done in range(self.trained + 1, last) if self.plan.every and done % self.plan.every == 0)
        clone = bool(self.plan.updates) and not self.trained and "clone" not in self._evaluated
        end = self._iterations_left() > 0 or "end" not in self._evaluated
        return due * between_s + (clone + end) * whole_s


def forecast_of(plan: RunPlan, rows: Sequence[Mapping[str, Any]], timings: Sequence[Mapping[str, Any]]) -> Forecast:
    """The forecast from the stored lines of metrics and of timings."""
    found = Forecast(plan)
    timed = {(row["stage"], row["step"]): row for row in timings}
    evaluations = iter([row for row in timings if row["stage"] == "eval"])  # in the order of their metrics
    for row in rows:
        is_evaluation = row["stage"] == "eval"
        found.add(row, next(evaluations, {}) if is_evaluation else timed.get((row["stage"], row["step"]), {}))
    return found


def _mean(values: deque[float]) -> float:
    return sum(values) / len(values)


def plan_of(config: Mapping[str, Any], episodes: int = 0) -> RunPlan:
    """The plan in the configuration of a run, as config.toml stores it; an option that is missing or damaged is 0.

    Args:
        config: the nested tables.
        episodes: number of episodes per iteration; 0: tasks x copies of the section [batch].
    """

    def whole(section: str, key: str) -> int:
        table = config.get(section)
        value = table.get(key) if isinstance(table, Mapping) else None
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    learner = config.get("learner")
    budget = learner.get("budget") if isinstance(learner, Mapping) else None
    return RunPlan(
        updates=whole("warmup", "updates"),
        clone_episodes=whole("warmup", "episodes"),
        iterations=whole("run", "iterations"),
        episodes=episodes or whole("batch", "tasks") * whole("batch", "copies"),
        every=whole("eval", "every"),
        tasks=whole("eval", "tasks"),
        during=whole("eval", "during"),
        tokens=whole("run", "tokens"),
        actions=whole("run", "actions"),
        dollars=finite_number(budget) or 0.0,
    )


def spell(seconds: float) -> str:
    """A time in words: 40 seconds, 5 minutes, 3 hours, 2 days."""
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * size or (unit == "minute" and seconds >= 60):
            count = round(seconds / size)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    count = round(seconds)
    return f"{count} second{'' if count == 1 else 's'}"


class Told:
    """Decides when the terminal prints a forecast: when a part is first known, and when it has changed much."""

    def __init__(self) -> None:
        self._parts: frozenset[str] = frozenset()
        self._end: tuple[float, float] | None = None  # (clock at which the run would end, seconds that were left)

    def line(self, forecast: Forecast, clock: float) -> str:
        """The sentence to print now; empty if nothing new is to be said.

        Args:
            forecast: the forecast.
            clock: the present time in seconds, of any clock that does not go back.
        """
        left = forecast.left()
        measured = {*(["warm-up"] if forecast.clones else []), *(["training"] if forecast.iterations else [])}
        new = bool(measured - self._parts)
        if self._end is not None and left.total is not None:
            due = max(1.0, self._end[0] - clock)
            off = abs(left.total - due)
            new |= off >= NOTABLE_S and not due / CHANGED <= left.total <= due * CHANGED
        if not new:
            return ""
        self._parts |= measured
        self._end = None if left.total is None else (clock + left.total, left.total)
        return in_words(forecast, left)


def in_words(forecast: Forecast, left: TimeLeft) -> str:
    """The forecast as a sentence; empty if nothing is left, or nothing known."""
    parts = []
    if left.warm_up:
        due = forecast.plan.updates - forecast.cloned
        parts.append(f"the warm-up about {spell(left.warm_up)} more ({due} updates of {left.warm_up / due:.2g} s)")
    if left.training:
        each = forecast.iteration_s()
        guessed = "" if forecast.iterations else ", estimated before the first one"
        parts.append(f"training about {spell(left.training)} ({each:.2g} s per iteration{guessed})")
    if left.evaluations:
        parts.append(f"evaluations about {spell(left.evaluations)}")
    whole = f"the run takes about {spell(left.total)} more: " if left.total is not None else ""
    return f"time: {whole}{', '.join(parts)}" if parts else ""
