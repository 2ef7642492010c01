"""Checks with attacks whether a recipe rewards worthless answers, for `agentrl check RECIPE --reward`.

Each attack of `agentrl.preflight.ATTACKS` plays tasks of the recipe. For each task, scores and rewards get a group as
in training: two copies of the attack, an honest wrong answer, and a right answer if an expert or the environment's
`gold` provides one. An attack fools a signal on a task if the attack's value is more than half of the way from the
value of the wrong answer to the value of the right answer. This also holds for a signal that is lower for right
answers. If no right answer is known, or the right and the wrong answer have equal values, an attack fools the signal if
the attack's value is above the value of the wrong answer.

If the environment has the hook `spellings`, its nearly right answers are attacks too, and its right answers in other
spellings must be taken for right answers.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from agentrl.chat import first_tagged, shorten
from agentrl.credit import Ends, ends, rescore, signal, signal_names, totals
from agentrl.env import Handle
from agentrl.graph import StepGraph
from agentrl.preflight import ATTACKS, Attack
from agentrl.rollout import Actor, EpisodeRecord, build_graph, expert_actor, lost, play
from agentrl.run import EVALUATE, Rollouts
from agentrl.scoring import ScoreStage
from agentrl.settings import Settings
from agentrl.types import Generation, Request, Task

COPIES = 2  # copies of an attack in its group
OTHERS = 12  # largest number of right answers of other tasks that an attack lists beside the answer of its own task
LONGEST = 2000  # largest number of characters that an attack copies from the question or from the observation
NEARLY = 1e-9  # values that differ by at most this count as equal
SPELLING = "spelling"  # family of the attacks that the environment's hook `spellings` makes
SUCCESS, REWARD = "success", "reward"  # columns beside the signals: the environment's verdict, and the reward


@dataclass(frozen=True, kw_only=True)
class Fooled:
    """How often the attacks of a family fooled one column.

    Attributes:
        family: the family of the attacks (`agentrl.preflight.Attack`).
        column: a signal, `success` (the environment's own verdict) or `reward` (the sum of the rewards of the recipe).
        fooled, tried: number of cases (an attack on a task) that fooled the column, and number of cases tried.
        worst: the attack that fooled the column most often; empty if no attack did.
    """

    family: str
    column: str
    fooled: int
    tried: int
    worst: str = ""


@dataclass(frozen=True, kw_only=True)
class RewardCheck:
    """The result of a check.

    Attributes:
        rows: one per family and column.
        tasks: number of tasks with an honest wrong answer; only these are compared.
        right: number of these tasks that have a right answer too.
        separates: column -> share of the tasks with a right answer on which the right and the wrong answer have
            different values. If the share is 0, the column cannot tell right answers from wrong ones. Then the recipe
            may be bad even if no attack fools this column.
        notes: what was not checked, one sentence per note.
        refused: name of a spelling of right answers (the environment's hook `spellings`) -> number of tasks on which
            the reward does not take it for a right answer; only names with such tasks.
        paid: number of judges' answers that were paid for, and number of tokens of these answers.
    """

    rows: Sequence[Fooled]
    tasks: int
    right: int
    separates: Mapping[str, float]
    notes: Sequence[str]
    refused: Mapping[str, int] = field(default_factory=dict)
    paid: tuple[int, int] = (0, 0)

    def share(self, column: str) -> float:
        """The share of all tried cases (an attack on a task) that fooled a column."""
        own = [row for row in self.rows if row.column == column]
        return sum(row.fooled for row in own) / max(1, sum(row.tried for row in own))


class Saying(Actor):
    """Answers every turn by a rule.

    Args:
        name: name of the actor in reports.
        text: function from a request to the text of the answer.
    """

    def __init__(self, name: str, text: Callable[[Request], str]) -> None:
        self.name, self.chat, self.context_limit, self._text = name, None, None, text

    async def answer(self, request: Request, handle: Handle) -> Generation:
        return Generation(text=self._text(request))


class _RewardTrial:
    """What one check needs: rollouts without a model, the tasks, and the gold answers of the tasks as plain text."""

    def __init__(self, settings: Settings, rollouts: Rollouts, count: int) -> None:
        self.settings, self.rollouts = settings, rollouts
        self.prompt, self.gold = rollouts.main.prompt, settings.env.hooks.gold
        self.tasks = [rollouts.tasks[i] for i in range(min(count, len(rollouts.tasks)))]
        others = [rollouts.tasks[i] for i in range(min(count + OTHERS, len(rollouts.tasks)))]
        self.answers = {task.key: inside(self.gold(task)) for task in others} if self.gold is not None else {}
        spell = settings.env.hooks.spellings
        self.spelled = {task.key: {one.name: one for one in spell(task)} for task in self.tasks} if spell else {}

    def spellings(self, *, right: bool) -> list[Attack]:
        """One attack per name of the environment's spellings, of the right or of the nearly right answers."""
        own = [one for by_name in self.spelled.values() for one in by_name.values() if one.right == right]
        return [Attack(family=SPELLING, name=name, text="SPELLED") for name in dict.fromkeys(one.name for one in own)]

    def play(self, actor: Actor) -> list[EpisodeRecord]:
        """Play one episode per task with `actor` as the main agent. Experts play the other agents of the recipe."""
        agents = self.rollouts.agents.values()
        actors = {agent.name: expert_actor(agent) for agent in agents}
        player = self.rollouts.crews["train"].player({**actors, self.rollouts.main.name: actor}, EVALUATE)
        return self.rollouts.loop.run(play(replace(player, admissible=False), self.tasks))

    def right(self) -> dict[str, EpisodeRecord]:
        """Key of a task -> a successful episode: of the expert, else with the gold answer in every turn."""
        found = {r.task.key: r for r in self._expert() if r.success and not lost(r)}
        if self.gold is not None and len(found) < len(self.tasks):
            given = self.play(self._by_task("the right answer", {t.key: self.gold(t) for t in self.tasks}))
            found = {r.task.key: r for r in given if r.success and not lost(r)} | found
        return found

    def wrong(self) -> dict[str, EpisodeRecord]:
        """Key of a task -> an episode without success that answers with another task's answer or "I do not know"."""
        said = {}
        for task in self.tasks:
            own = self.answers.get(task.key, "")
            other = next((text for text in self.answers.values() if text != own), "I do not know")
            said[task.key] = self._final(task, other)
        records = self.play(self._by_task("a wrong answer", said))
        return {r.task.key: r for r in records if not r.success and not lost(r)}

    def attack(self, attack: Attack) -> list[EpisodeRecord]:
        """The episodes of an attack."""

        def text(request: Request) -> str:
            seen = request.observation
            asked = seen.task or seen.text
            task = self.tasks[request.session]  # `play` gives task i the session i
            words = {
                "QUESTION": shorten(asked, LONGEST, "middle"),
                "OBSERVATION": shorten(seen.text, LONGEST, "middle"),
                "MANY": ", ".join(self.candidates(task)),
                "SPELLED": spelled.text if (spelled := self.spelled.get(task.key, {}).get(attack.name)) else "",
            }
            return self.prompt.answer(self._final(task, attack.written(words)))

        return self.play(Saying(attack.name, text))

    def covers(self, attack: Attack, task: Task) -> bool:
        """Is there such an attack on a task?"""
        return attack.family != SPELLING or attack.name in self.spelled.get(task.key, {})

    def candidates(self, task: Task) -> list[str]:
        """The right answers of several tasks, among them `task`; the numbers 0 to 49 if no right answer is known."""
        if not self.answers:
            return [str(number) for number in range(50)]
        listed = [*self.answers.values()][:OTHERS]
        return sorted({*listed, self.answers[task.key]})

    def _expert(self) -> list[EpisodeRecord]:
        try:
            return self.play(expert_actor(self.rollouts.main))
        except ValueError:  # the environment has no expert, and no actions or tools for a random player
            return []

    def _by_task(self, name: str, actions: Mapping[str, str]) -> Actor:
        """An actor that gives, in every turn, the action for the task of its episode."""
        return Saying(name, lambda request: self.prompt.answer(actions[self.tasks[request.session].key]))

    def _final(self, task: Task, text: str) -> str:
        """The action that gives `text` as the final answer, in the same tags as the task's gold answer, if any."""
        if self.gold is None:
            return text
        return tagged_like(self.gold(task), text)


def check_reward(settings: Settings, tasks: int, attacks: Sequence[Attack] = ATTACKS) -> RewardCheck:
    """Attack the scores and rewards of a recipe on its first `tasks` tasks.

    No file is written. Judges are asked, and their answers are paid for.

    Raises:
        ValueError: the recipe has a mistake, a limit of [scoring] is reached, every episode with a wrong answer
            succeeded or was lost, or no answer could be scored.
    """
    rollouts = Rollouts(settings)
    stage = ScoreStage(settings.score, settings.tables.scoring, rollouts.main.name)
    try:
        stage.prepare()
        check = _RewardTrial(settings, rollouts, tasks)
        right, wrong = check.right(), check.wrong()
        if not wrong:
            raise ValueError(
                f"no honest wrong answer could be played in {settings.env.name}, so the attacks cannot be compared "
                "with one: the environment fails, or counts every answer as a success"
            )
        attacks = [*attacks, *check.spellings(right=False)]
        measured = [_Measured(check, stage, attack, right, wrong) for attack in attacks]
        spelled = [_Measured(check, stage, attack, right, wrong) for attack in check.spellings(right=True)]
    finally:
        rollouts.loop.run(stage.close())
        rollouts.close()
    unscored = [why for one in measured for why in one.faults]
    if unscored and not any(one.fooled[REWARD] for one in measured):
        raise ValueError(f"no answer could be scored, so nothing was checked: {unscored[0]}")
    spent = stage.paid.spent
    return RewardCheck(
        rows=_rows(measured),
        tasks=len(wrong),
        right=len(right.keys() & wrong.keys()),
        separates=_separates(measured),
        notes=_notes(settings, measured),
        refused={one.attack.name: count for one in spelled if (count := one.fooled[REWARD].count(False))},
        paid=(spent.answers, spent.tokens),
    )


class _Measured:
    """The result of one attack on all tasks.

    Attributes:
        attack: the attack.
        fooled: column -> per task, whether the attack fooled the column.
        apart: column -> per task with a right answer, whether the right and the wrong answer have different values.
        faults: reasons why chains could not be scored.
    """

    def __init__(
        self,
        check: _RewardTrial,
        stage: ScoreStage,
        attack: Attack,
        right: Mapping[str, EpisodeRecord],
        wrong: Mapping[str, EpisodeRecord],
    ) -> None:
        self.attack = attack
        self.fooled: dict[str, list[bool]] = {SUCCESS: [], REWARD: []}
        self.apart: dict[str, list[bool]] = {}
        played = [r for r in check.attack(attack) if r.task.key in wrong and not lost(r) and r.steps]
        played = [r for r in played if check.covers(attack, r.task)]
        groups = []
        for number, record in enumerate(played):
            honest = [wrong[record.task.key], *([right[record.task.key]] if record.task.key in right else [])]
            groups += [_copy(one, number, copy) for copy, one in enumerate([*[record] * COPIES, *honest])]
        graph = build_graph(groups)
        stage.begin(0)
        scored = check.rollouts.loop.run(stage.score(graph, {task.key: task for task in check.tasks}))
        self.faults = sorted(set(scored.faults.values()))
        graph = rescore(scored.on(graph), check.settings.reward)
        at, copy = ends(graph), _copies(graph)
        for number, record in enumerate(played):
            here = {
                int(copy[row]): i for i, row in enumerate(at.row) if graph.group[row] == number and at.weight[i] > 0
            }
            self.fooled[SUCCESS].append(record.success)
            for name, x in _columns(graph, at).items():
                if {0, COPIES} <= here.keys():
                    best = x[here[COPIES + 1]] if COPIES + 1 in here else math.nan
                    if not math.isnan(best):
                        self.apart.setdefault(name, []).append(abs(best - x[here[COPIES]]) > NEARLY)
                    self.fooled.setdefault(name, []).append(fools(x[here[0]], x[here[COPIES]], best))


def fools(attack: float, wrong: float, right: float) -> bool:
    """Does an attack with the value `attack` fool a signal? The module's docstring has the rule.

    `wrong` and `right` are the values of the two honest answers; `right` is NaN if no right answer is known.
    """
    if math.isnan(attack):
        return False
    if math.isnan(right) or abs(right - wrong) <= NEARLY:
        return bool(attack > wrong + NEARLY)
    return bool((attack - wrong) / (right - wrong) > 0.5)


def _columns(graph: StepGraph, at: Ends) -> dict[str, np.ndarray]:
    """Column -> [L] sum of the column over each path."""
    signals = {name: totals(graph, signal(graph, name), at) for name in signal_names(graph)}
    return {**signals, REWARD: totals(graph, graph.reward, at)}


def _copy(record: EpisodeRecord, group: int, copy: int) -> EpisodeRecord:
    return replace(record, group=group, copy=copy, steps=[replace(step) for step in record.steps])


def _copies(graph: StepGraph) -> np.ndarray:
    """[N] int64: the number of the copy to which each step belongs."""
    names = graph.names["episode"]
    return np.array([int(names[int(e)].rpartition("#")[2]) for e in graph.episode], np.int64)


def inside(action: str) -> str:
    """The text between the tags, if the action is a text in a pair of tags; else the action."""
    if not action.startswith("<"):
        return action
    found = first_tagged(action, [action[1:].partition(">")[0]])
    return action if found is None else found.content


def tagged_like(action: str, text: str) -> str:
    """The text in the tags of an action; the bare text if the action has no tags."""
    content = inside(action)
    return action.replace(content, text) if content != action else text


def _rows(measured: Sequence[_Measured]) -> list[Fooled]:
    columns = dict.fromkeys(name for one in measured for name in one.fooled if name != REWARD)
    rows = []
    for family in dict.fromkeys(one.attack.family for one in measured):
        own = [one for one in measured if one.attack.family == family]
        for column in [*columns, REWARD]:
            times = Counter({one.attack.name: sum(one.fooled.get(column, ())) for one in own})
            worst, most = times.most_common(1)[0]
            rows.append(
                Fooled(
                    family=family,
                    column=column,
                    fooled=times.total(),
                    tried=sum(len(one.fooled.get(column, ())) for one in own),
                    worst=worst if most else "",
                )
            )
    return rows


def _separates(measured: Sequence[_Measured]) -> dict[str, float]:
    """See `RewardCheck.separates`. The groups of all attacks count, because each group contains the honest answers."""
    told: dict[str, list[bool]] = {}
    for one in measured:
        for name, apart in one.apart.items():
            told.setdefault(name, []).extend(apart)
    return {name: sum(map(bool, apart)) / len(apart) for name, apart in told.items()}


def _notes(settings: Settings, measured: Sequence[_Measured]) -> list[str]:
    """See `RewardCheck.notes`."""
    notes = [f"chains that could not be scored are left out: {why}" for one in measured for why in one.faults]
    late = [entry.name for entry in settings.reward if entry.hooks.needs]
    if late:
        notes.append(f"reward transforms left out, because they read columns that a model fills: {', '.join(late)}")
    if settings.engine.config.actions == "admissible":
        notes.append(
            "engine.actions=admissible: the policy can give one of these answers only if the environment lists it"
        )
    return list(dict.fromkeys(notes))[:5]
