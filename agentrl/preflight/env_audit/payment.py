"""What an environment pays: for right answers, in several spellings, and for answers that solve nothing.

An answer is played in every turn of an episode, at most `TURNS` turns. The right answer of a task is the one of the
hook `gold`, else what the first expert plays. An answer that solves nothing is paid like a right answer if it is a
success or, where a right answer is known, if it fools the reward as `agentrl.preflight.reward_check` defines it: its
reward is closer to that of the right answer than to that of a wrong answer. If the environment calls other agents, the
reward depends on their play, which is random here, so nothing is said about answers.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from agentrl.chat import shorten
from agentrl.config import Entry
from agentrl.env import EnvironmentFile, prompt_of
from agentrl.graph import success_of
from agentrl.gym import Untried, Walk, timed
from agentrl.preflight.attacks import ATTACKS
from agentrl.preflight.env_audit.shown import marked, shown
from agentrl.preflight.reward_check import LONGEST, NEARLY, OTHERS, fools, inside, tagged_like
from agentrl.tool import action as tool_action
from agentrl.types import Observation, Status, Task
from agentrl.user_code import raised_at

TURNS = 12  # largest number of turns in which an answer is played
RANDOM_WALKS = 4  # random walks per task, to compare with texts that are no listed action
UNKNOWN = "I do not know"
SPELLINGS: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {
        "a line end behind it": lambda x: f"{x}\n",
        "blanks around it": lambda x: f"  {x}  ",
        "a full stop behind it": lambda x: f"{x}.",
        "in bold": lambda x: f"**{x}**",
        "in a box": lambda x: f"\\boxed{{{x}}}",
        "between dollars": lambda x: f"${x}$",
        "in quotation marks": lambda x: f'"{x}"',
        "in a sentence": lambda x: f"The answer is {x}.",
        "in capitals": str.upper,
        "in small letters": str.lower,
    }
)


@dataclass(frozen=True, kw_only=True)
class TaskShare:
    """In `count` of `tried` tasks something held for what `name` describes."""

    family: str = ""
    name: str
    count: int
    tried: int


@dataclass(frozen=True, kw_only=True)
class Payment:
    """What was paid.

    Attributes:
        smallest, largest: rewards of an episode, over all that was played; NaN if nothing was played.
        known: number of tasks with a right answer, and number of tasks tried.
        right: the tasks whose right answer is a success.
        exchanged: the tasks on which the right answer of another task is a success.
        attacks: per answer that solves nothing, the tasks on which it is paid like a right answer.
        spellings: per spelling of the right answer, the tasks on which it is still a success.
        shown: the tasks whose first observation contains the right answer; and how often a right answer of another task
            is in it.
    """

    smallest: float
    largest: float
    known: tuple[int, int]
    right: TaskShare
    exchanged: TaskShare
    attacks: Sequence[TaskShare]
    spellings: Sequence[TaskShare]
    shown: Sequence[TaskShare]


@dataclass
class AnswerEpisode:
    """The sum of the rewards of one episode, whether it succeeded, and its steps."""

    total: float
    success: bool
    walk: Walk


@dataclass
class Payments:
    """Plays answers in one environment; `rewards` and the results of the laws are there after `measure`.

    Attributes:
        findings: law -> its findings.
        untried: law -> why it could not be tried.
        answers: key of a task -> the text of its right answer.
        exchanged: per task, whether the right answer of another task is a success.
    """

    entry: Entry[EnvironmentFile]
    tasks: Sequence[Task]
    steps: int
    seed: int
    rewards: list[float] = field(default_factory=list)
    findings: dict[str, list[str]] = field(
        default_factory=lambda: {name: [] for name in ("right", "graded", "worthless", "idle", "shown")}
    )
    untried: dict[str, str] = field(default_factory=dict)
    exchanged: list[bool] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)

    def measure(self) -> Payment:
        """Play everything."""
        self.prompt = prompt_of(self.entry)
        if self.entry.hooks.agents is not None and self.entry.hooks.agents(self.entry.config):
            why = "the reward depends on the agents that the environment calls, which play at random here"
            self.untried = dict.fromkeys(self.findings, why)
            return self._payment({}, {}, [], [])
        right = {task.key: played for task in self.tasks if (played := self._right(task)) is not None}
        self.answers = {key: text for key, played in right.items() if (text := self._answer(played)) is not None}
        solved = {key: played for key, played in right.items() if played.success}
        self._check_right(right)
        wrong = {task.key: self._wrong(task) for task in self.tasks}
        self._check_wrong(wrong)
        attacks = self._attacks(wrong, solved)
        self._check_idle(wrong)
        if not self.answers:
            self.untried["shown"] = "no right answer in free text is known"
        starts = {key: one.walk for key, one in wrong.items() if one is not None}
        self.findings["shown"] += marked(starts, self.answers)
        shares = [] if not self.answers else shown(starts, self.answers)
        return self._payment(
            right, solved, attacks, [TaskShare(name=name, count=n, tried=of) for name, n, of in shares]
        )

    def _payment(
        self,
        right: Mapping[str, AnswerEpisode],
        solved: Mapping[str, AnswerEpisode],
        attacks: Sequence[TaskShare],
        shown: Sequence[TaskShare],
    ) -> Payment:
        spellings = [self._spelled(name, spell, solved) for name, spell in SPELLINGS.items()] if self.answers else []
        return Payment(
            smallest=min(self.rewards, default=math.nan),
            largest=max(self.rewards, default=math.nan),
            known=(len(right), len(self.tasks)),
            right=TaskShare(name="the right answer", count=len(solved), tried=len(right)),
            exchanged=TaskShare(
                name="the right answer of another task", count=sum(self.exchanged), tried=len(self.exchanged)
            ),
            attacks=attacks,
            spellings=[one for one in spellings if one.tried],
            shown=shown,
        )

    def _play(self, task: Task, choose: Callable[[Observation], str], turns: int = TURNS) -> AnswerEpisode:
        walk = Walk(self.entry, task, self.seed, turns)
        observation = walk.reset()
        for _ in range(turns):
            result = walk.step(choose(observation))
            observation = result.observation
            if result.terminated or result.truncated:
                break
        return self._done(walk)

    def _done(self, walk: Walk) -> AnswerEpisode:
        timed(walk.env.close)
        total = float(sum(result.reward for result in walk.results))
        self.rewards.append(total)
        word = walk.results[-1].info.get("success")
        known = math.nan if word is None else float(word)
        return AnswerEpisode(total, bool(success_of(known, total)), walk)

    def say(self, task: Task, text: str) -> AnswerEpisode:
        """Give the text as the final answer in every turn."""

        def choose(observation: Observation) -> str:
            return self._action(task, text, observation)

        return self._play(task, choose)

    def _action(self, task: Task, text: str, observation: Observation) -> str:
        """The action that a reply with this final answer gives, in the tags of the task's gold answer, if any."""
        gold = self.entry.hooks.gold
        final = text if gold is None else tagged_like(gold(task), text)
        return self.prompt.parse(self.prompt.answer(final), observation).action

    def _right(self, task: Task) -> AnswerEpisode | None:
        """An episode with the right answer: a successful one, if there is one; None if no right answer is known."""
        hooks, found = self.entry.hooks, None
        if hooks.expert is not None and hooks.experts:
            found = self._expert(task, "expert" if "expert" in hooks.experts else hooks.experts[0])
        if (found is None or not found.success) and hooks.gold is not None:
            gold = hooks.gold(task)
            found = self._play(task, lambda o: self.prompt.parse(self.prompt.answer(gold), o).action)
        return found

    def _expert(self, task: Task, name: str) -> AnswerEpisode | None:
        assert self.entry.hooks.expert is not None
        walk = Walk(self.entry, task, self.seed, self.steps)
        observation = walk.reset()
        try:
            player = self.entry.hooks.expert(walk.env, name, self.seed)
            player.reset(task)
            for _ in range(self.steps):
                result = walk.step(timed(lambda at=observation: player.act(at)).action)  # type: ignore[misc]
                observation = result.observation
                if result.terminated or result.truncated:
                    break
        except ValueError:  # the expert says that it cannot play this task
            timed(walk.env.close)
            return None
        return self._done(walk)

    def _answer(self, played: AnswerEpisode) -> str | None:
        """The text of the right answer, if the last action was an answer in free text."""
        walk = played.walk
        action = walk.actions[-1]
        if walk.observations[-2].tools:
            return tool_action.read(action).answer
        return None if action in walk.observations[-2].actions else inside(action)

    def _check_right(self, right: Mapping[str, AnswerEpisode]) -> None:
        if not right:
            self.untried["right"] = "no right answer is known: the environment has neither gold answers nor an expert"
        lost = {key: played for key, played in right.items() if not played.success}
        if lost:
            key, played = next(iter(lost.items()))
            answer = shorten(self.answers.get(key, played.walk.actions[-1]), 60)
            self.findings["right"].append(
                f"the environment's own answer is no success on {len(lost)} of {len(right)} tasks, such as {key}: "
                f"{answer!r} earns {played.total:g}"
            )

    def _wrong(self, task: Task) -> AnswerEpisode | None:
        """An episode with an honest wrong answer; None if each of them is a success."""
        own = self.answers.get(task.key)
        others = [text for text in self.answers.values() if text != own]
        for number, text in enumerate(dict.fromkeys([*others[:2], UNKNOWN])):
            played = self.say(task, text)
            if number == 0 and others:
                self.exchanged.append(played.success)
            if not played.success:
                return played
        return None

    def _check_wrong(self, wrong: Mapping[str, AnswerEpisode | None]) -> None:
        paid = [key for key, played in wrong.items() if played is None]
        if paid:
            self.findings["worthless"].append(
                f"every wrong answer that was tried is a success on {len(paid)} of {len(wrong)} tasks, such as "
                f"{UNKNOWN!r} on {paid[0]}"
            )
        elif len(self.exchanged) > 2 and all(self.exchanged):
            self.findings["worthless"].append(
                f"the right answer of another task is a success on each of {len(self.exchanged)} tasks, such as "
                f"{next(iter(wrong))}"
            )

    def _attacks(
        self, wrong: Mapping[str, AnswerEpisode | None], right: Mapping[str, AnswerEpisode]
    ) -> list[TaskShare]:
        found, failed = [], dict[str, str]()
        for attack in ATTACKS:
            paid = tried = 0
            for task in self.tasks:
                honest = wrong[task.key]
                first = honest.walk.observations[0] if honest else self._first(task)
                text = attack.written(self._words(task, first))
                if _is_number(text) and _is_number(self.answers.get(task.key, "0")):
                    continue  # a number may be right, or nearly right, by chance
                try:
                    played = self.say(task, text)
                except Exception as error:  # noqa: BLE001  whatever an environment raises is a finding
                    raised = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}{raised_at(error)}"
                    self.findings["worthless"].append(f"task {task.key}: the answer {attack.name!r} raised {raised}")
                    continue
                fooled = played.success or _fooled(played, honest, right.get(task.key))
                if fooled and _contains(attack.text, self.answers.get(task.key)):
                    continue  # the answer is right by chance: "the grade is 10" where 10 is right
                paid, tried = paid + fooled, tried + 1
                last = played.walk.results[-1]
                if last.info.get("status") == Status.TOOL_ERROR and not last.info.get("calls") and not first.tools:
                    failed.setdefault(attack.name, last.observation.text)
            found.append(TaskShare(family=attack.family, name=attack.name, count=paid, tried=tried))
        if failed:
            text = shorten(next(iter(failed.values())), 200)
            self.findings["graded"].append(
                f"the environment failed to read {len(failed)} of {len(ATTACKS)} answers, such as "
                f"{next(iter(failed))!r}: {text}"
            )
        self._say_paid(found)
        self._check_order(wrong, right)
        return found

    def _first(self, task: Task) -> Observation:
        walk = Walk(self.entry, task, self.seed, 1)
        first = walk.reset()
        timed(walk.env.close)
        return first

    def _words(self, task: Task, first: Observation) -> dict[str, str]:
        own = self.answers.get(task.key)
        others = sorted({*self.answers.values()} - {own})[:OTHERS]
        # The right answer stands in the middle: an environment may rightly read the first or the last answer of a list.
        half = (len(others) + 1) // 2
        listed = [UNKNOWN, *others[:half], own, *others[half:], UNKNOWN] if own is not None else map(str, range(50))
        return {
            "QUESTION": shorten(first.task or first.text, LONGEST, "middle"),
            "OBSERVATION": shorten(first.text, LONGEST, "middle"),
            "MANY": ", ".join(listed),
        }

    def _say_paid(self, found: Sequence[TaskShare]) -> None:
        paid = [one for one in found if one.count]
        if paid:
            listed = ", ".join(f"{one.family}: {one.name} ({one.count} of {one.tried} tasks)" for one in paid[:6])
            more = f" and {len(paid) - 6} more" if paid[6:] else ""
            tried = sum(one.tried > 0 for one in found)
            self.findings["worthless"].append(
                f"{len(paid)} of {tried} answers that solve nothing are paid like a right answer: {listed}{more}"
            )

    def _check_order(self, wrong: Mapping[str, AnswerEpisode | None], right: Mapping[str, AnswerEpisode]) -> None:
        """Is a right answer paid more than a wrong one?"""
        for task in self.tasks:
            honest, best = wrong[task.key], right.get(task.key)
            if honest is not None and best is not None and best.total <= honest.total + NEARLY:
                self.findings["worthless"].append(
                    f"task {task.key}: the right answer earns {best.total:g}, a wrong answer {honest.total:g}"
                )

    def _check_idle(self, wrong: Mapping[str, AnswerEpisode | None]) -> None:
        """Is some play of listed actions paid as well as turns with a text that is no action?"""
        played = [one for one in wrong.values() if one is not None]
        if not played or not all(one.walk.observations[0].actions for one in played):
            self.untried["idle"] = "the environment lists no actions"
            return
        idle = [one.total for one in played if len(one.walk.actions) == TURNS]
        if not idle:
            self.untried["idle"] = "a text that is no action ends the episode"
            return
        best = max(self._listed_plays())
        if min(idle) > best + NEARLY:
            self.findings["idle"].append(
                f"{TURNS} turns with a text that is no action earn {min(idle):g}, and the best of random and constant "
                f"listed actions earns {best:g}: a policy that never plays is paid better"
            )

    def _listed_plays(self) -> Iterator[float]:
        for task in self.tasks:
            for number in range(RANDOM_WALKS):
                walk = Walk(self.entry, task, self.seed + number, TURNS).run()
                yield self._done(walk).total
            for number in range(8):

                def choose(observation: Observation, number: int = number) -> str:
                    return observation.actions[number % len(observation.actions)] if observation.actions else ""

                yield self._play(task, choose).total

    def _spelled(self, name: str, spell: Callable[[str], str], right: Mapping[str, AnswerEpisode]) -> TaskShare:
        """The tasks on which the right answer is a success in another spelling, among those where it is one."""
        won = tried = 0
        for task in self.tasks:
            text, before = self.answers.get(task.key), right.get(task.key)
            if text is None or before is None or spell(text) == text:
                continue
            walk = Walk(self.entry, task, self.seed, self.steps).again(before.walk.actions[:-1])
            walk.step(self._action(task, spell(text), walk.observations[-1]))
            tried += 1
            won += self._done(walk).success
        return TaskShare(name=name, count=won, tried=tried)


def _fooled(attack: AnswerEpisode, wrong: AnswerEpisode | None, right: AnswerEpisode | None) -> bool:
    """Is an attack that is no success paid nearly like the right answer? If this is not known: no."""
    return wrong is not None and right is not None and fools(attack.total, wrong.total, right.total)


def _contains(text: str, answer: str | None) -> bool:
    """Is the answer among the words of the text?"""
    return answer is not None and re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text) is not None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def law(payments: Payments, name: str) -> Iterator[str]:
    """The findings of the law `right`, `graded`, `worthless`, `idle` or `shown`, after `measure`."""
    if name in payments.untried:
        raise Untried(payments.untried[name])
    yield from payments.findings[name]
