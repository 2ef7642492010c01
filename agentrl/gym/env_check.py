"""Checks that an environment keeps the promises of `agentrl.env.Env`, by random walks over some tasks.

Each broken promise becomes one sentence, which `agentrl check ENV` prints. The checker is stricter than Gymnasium's own
checker, which it also runs.
"""

import copy
import functools
import itertools
import json
import pickle
import random
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal

import numpy as np
from gymnasium.utils.env_checker import check_env as gymnasium_check

from agentrl import catalogue
from agentrl.config import Entry, resolve
from agentrl.env import (
    Delegates,
    Env,
    EnvironmentFile,
    PastTurn,
    Snapshots,
    checked_observation,
    checked_result,
    deadline,
    prompt_of,
    raised_at,
    tasks_of,
)
from agentrl.gym.environment import GymEnv
from agentrl.tool import random_action
from agentrl.types import AgentReply, EnvFault, Observation, Status, StepResult, Task

# The parts in which findings about the same exception differ.
PLACE_OR_ADVICE = re.compile(r"; return an observation instead| \(passive_env_checker\.py:\d+, in \w+\)")
CALL_S = 30.0  # seconds; a call of the environment that takes longer counts as hanging
GARBAGE = (
    "",
    " ",
    "\n",
    "no such action",
    "go to \x00",
    "Ünïcode 漢字 \N{SLIGHTLY SMILING FACE}",
    '{"tool": ',
    "<action>look</action>",
    "a" * 10_000,
)


def check_env(
    entry: Entry[EnvironmentFile] | ModuleType | str,
    config: Any = None,
    *,
    tasks: int = 4,
    steps: int = 60,
    seed: int = 0,
) -> list[str]:
    """The promises that an environment breaks, one sentence each; empty if it keeps them all.

    Args:
        entry: a catalogue entry, an environment's module, or its name.
        config: the options, if `entry` is a module or a name; None for the defaults.
        tasks: number of tasks to walk through, spread over the list of tasks.
        steps: largest number of steps of each walk.
        seed: seed of the walks.
    """
    subject = _entry(entry, config)
    findings = list(_guarded("the task list", lambda: _check_list(subject)))
    if findings:
        return findings
    listed = tasks_of(subject)
    indices = sorted({round(i * (min(len(listed), 1 << 20) - 1) / max(1, tasks - 1)) for i in range(tasks)})
    for task in [listed[i] for i in indices]:
        for check in (
            _check_walk,
            _check_again,
            _check_snapshot,
            _check_pickle,
            _check_words,
            _check_garbage,
        ):
            walk = Walk(subject, task, seed, steps)
            findings += _guarded(f"task {task.key}", lambda check=check, walk=walk: check(walk))  # type: ignore[misc]
    findings += _guarded("an expert", lambda: _check_experts(subject, listed[0], steps))
    findings += _guarded("Gymnasium's checker", lambda: _check_gymnasium(subject))
    return _joined(list(dict.fromkeys(findings)))


def _joined(findings: Sequence[str]) -> list[str]:
    """The findings. Of several that name the same exception only the first stays, with the number of the others."""
    alike: dict[str, list[str]] = {}
    for finding in findings:
        _, raised, exception = finding.partition(" raised ")
        # If an exception names no place in the user's code, Gymnasium's checker adds a place in Gymnasium's code.
        same = PLACE_OR_ADVICE.sub("", exception) if raised else finding
        alike.setdefault(same, []).append(finding)
    return [f"{one[0]} (and {len(one) - 1} more with this exception)" if one[1:] else one[0] for one in alike.values()]


def _entry(entry: Entry[EnvironmentFile] | ModuleType | str, config: Any) -> Entry[EnvironmentFile]:
    if isinstance(entry, Entry):
        return entry
    if isinstance(entry, str):
        named = resolve(EnvironmentFile, {"name": entry})
        return named if config is None else named._replace(config=config)
    file = catalogue.read(entry, EnvironmentFile)
    return Entry(entry.__name__, file, file.config() if config is None else config)


def _guarded(where: str, check: Callable[[], Iterator[str]]) -> Iterator[str]:
    """The findings of a check; an exception that the check raises is one more finding."""
    try:
        for finding in check():
            yield f"{where}: {finding}"
    except EnvFault as fault:
        yield f"{where}: {fault}"
    except Exception as error:  # noqa: BLE001  whatever an environment raises is a finding
        yield f"{where}: raised {type(error).__name__}: {' '.join(str(error).split())[:300]}{raised_at(error)}"


def difference_when_repeated(entry: Entry[EnvironmentFile], steps: int = 6, walks: int = 3) -> str:
    """The first difference between two plays of the first task with the same random actions; empty if there is none.

    Also empty if the environment cannot be played, because the user sees this error when the environment is played.
    """
    try:
        found = (_check_again(Walk(entry, tasks_of(entry)[0], seed, steps)) for seed in range(walks))
        return next(itertools.chain.from_iterable(found), "")
    except Exception:  # noqa: BLE001  see above
        return ""


def branches_by(entry: Entry[EnvironmentFile]) -> Literal["snapshot", "replay"]:
    """How a branch gets to a state of the environment: from a snapshot, or by a replay of the recorded actions."""
    walk = Walk(entry, tasks_of(entry)[0], 0, 1)
    try:
        walk.reset()
        kept = timed(walk.env.snapshot) if isinstance(walk.env, Snapshots) else None
        return "replay" if kept is None else "snapshot"
    finally:
        walk.env.close()


def timed(call: Callable[[], Any]) -> Any:
    """The value of a call, or EnvFault if the call hangs."""
    with deadline(CALL_S):
        return call()


@dataclass
class Walk:
    """A random walk through one task; equal seeds give equal walks."""

    entry: Entry[EnvironmentFile]
    task: Task
    seed: int
    steps: int
    env: Env = field(init=False)
    observations: list[Observation] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    results: list[StepResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.env = timed(lambda: self.entry.hooks.make(self.entry.config))

    def reset(self) -> Observation:
        """Start the task."""
        self.observations, self.actions, self.results = [], [], []
        self.observations.append(checked_observation(timed(lambda: self.env.reset(self.task))))
        return self.observations[0]

    def step(self, action: str) -> StepResult:
        """Carry out one action.

        No agent plays here, so each errand gets the reply of a failed episode (`ENV_ERROR`).
        """
        result = checked_result(timed(lambda: self.env.step(action)))
        while errands := result.info.get("errands"):
            if not isinstance(self.env, Delegates):
                raise EnvFault(
                    "the environment sends errands and has no method `returned(replies)` to take their replies"
                )
            replies = tuple(AgentReply("", Status.ENV_ERROR) for _ in errands)
            result = checked_result(timed(functools.partial(self.env.returned, replies)))
        self.actions.append(action)
        self.results.append(result)
        self.observations.append(result.observation)
        return result

    def run(self, steps: int | None = None) -> "Walk":
        """Reset, then take random actions until the episode ends, at most `steps`.

        Each action is one of the listed actions. If the environment lists no actions, it is a random tool call; if
        there are no tools either, it is a text of `GARBAGE`.
        """
        self.reset()
        rng = random.Random(self.seed)
        for _ in range(self.steps if steps is None else steps):
            result = self.step(self._random_action(rng))
            if result.terminated or result.truncated:
                break
        return self

    def _random_action(self, rng: random.Random) -> str:
        observation = self.observations[-1]
        if observation.tools and not observation.actions:
            return random_action(observation, np.random.default_rng(rng.getrandbits(32)))
        return rng.choice(observation.actions or GARBAGE)

    def again(self, actions: Sequence[str]) -> "Walk":
        """Reset, then carry out these actions."""
        self.reset()
        for action in actions:
            self.step(action)
        return self

    def transcript(self) -> list[str]:
        """The first observation and every result as texts, for comparisons."""
        return [repr(self.observations[0]), *map(line, self.results)]


def line(result: StepResult) -> str:
    """A result as a text for comparisons; the order of the entries of `info` does not matter."""
    return repr((*result[:4], sorted(result.info.items())))


def difference(a: Sequence[str], b: Sequence[str]) -> str:
    """The first step at which two transcripts differ, and both texts, shortened."""
    step, x, y = next((i, x, y) for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    at = next((i for i, (p, q) in enumerate(zip(x, y, strict=False)) if p != q), min(len(x), len(y)))
    return f"at step {step}: ...{x[max(0, at - 20) : at + 40]!r} and ...{y[max(0, at - 20) : at + 40]!r}"


def _check_list(entry: Entry[EnvironmentFile]) -> Iterator[str]:
    """There are tasks; a second list has the same tasks; keys are unique and find their tasks; tasks can be pickled."""
    first, second = tasks_of(entry), entry.hooks.tasks(entry.config)
    sample = [first[i] for i in range(min(len(first), 200))]
    if len(first) != len(second) or sample != [second[i] for i in range(len(sample))]:
        yield "tasks(config) gives another list the second time"
    keys = [task.key for task in sample]
    if len(set(keys)) < len(keys):
        yield f"two tasks have the key {next(k for k in keys if keys.count(k) > 1)!r}: keys must be unique"
    if pickle.loads(pickle.dumps(sample[0])) != sample[0]:
        yield "a task does not survive pickling"
    if _listed(json.loads(json.dumps(dict(sample[0].params)))) != _listed(dict(sample[0].params)):
        yield (
            f"the params of task {keys[0]!r} do not survive JSON: use texts as keys, and lists, texts and numbers "
            "as values"
        )
    if entry.hooks.find is not None and entry.hooks.find(entry.config, keys[-1]) != sample[-1]:
        yield f"find(config, {keys[-1]!r}) gives another task"
    if entry.hooks.kind is not None and not isinstance(entry.hooks.kind(sample[0]), str):
        yield "kind(task) is no text"


def _listed(value: Any) -> Any:
    """The value with lists in the place of tuples, as JSON returns it."""
    if isinstance(value, dict):
        return {key: _listed(one) for key, one in value.items()}
    return [_listed(one) for one in value] if isinstance(value, list | tuple) else value


def _check_walk(walk: Walk) -> Iterator[str]:
    """The environment accepts listed actions, and a step after the end of the episode."""
    walk.run()
    for turn, (action, result) in enumerate(zip(walk.actions, walk.results, strict=True)):
        if action in walk.observations[turn].actions and _refused(result):
            yield f"the listed action {action!r} was refused at step {turn}"
    if walk.results and (walk.results[-1].terminated or walk.results[-1].truncated):
        try:
            walk.step(walk.observations[-1].actions[0] if walk.observations[-1].actions else "look")
        except Exception as error:  # noqa: BLE001
            yield (
                f"a step after the end raised {type(error).__name__}: {error}; return an observation instead"
                f"{raised_at(error)}"
            )


def _refused(result: StepResult) -> bool:
    """Did the environment refuse the action?

    If a tool was called and raised an error, the action was not refused, because an error is a legal result of a tool.
    """
    if result.info.get("status", Status.OK) == Status.TOOL_ERROR and result.info.get("calls"):
        return bool(result.info.get("refused"))
    return bool(result.info.get("status", Status.OK) != Status.OK)


def _check_again(walk: Walk) -> Iterator[str]:
    """The same task and actions give the same results: in this instance after an episode, and in a new instance.

    The state of the global random generators must make no difference.
    """
    transcript = walk.run().transcript()
    actions = list(walk.actions)
    random.seed(walk.seed + 1)
    np.random.seed(walk.seed + 1)  # noqa: NPY002  the global generator is what is tested
    once_more = walk.again(actions).transcript()
    if once_more != transcript:
        yield f"the same task played again in one instance differs {difference(transcript, once_more)}"
    other = Walk(walk.entry, copy.deepcopy(walk.task), walk.seed, walk.steps).again(actions).transcript()
    if other != transcript:
        yield f"the same task in another instance differs {difference(transcript, other)}"
    for _ in range(2):
        timed(walk.env.close)  # a closed environment may be closed again


def _check_snapshot(walk: Walk) -> Iterator[str]:
    """A snapshot restores the state in which it was taken, in any instance, more than once, and after pickling."""
    walk.run()
    actions, transcript, half = list(walk.actions), walk.transcript(), len(walk.actions) // 2
    walk.again(actions[:half])
    if not isinstance(walk.env, Snapshots):
        return
    saved, observation = timed(walk.env.snapshot), walk.observations[-1]
    if saved is None:  # branches carry out the recorded actions again, which `_check_again` tries
        return
    stored = pickle.dumps(saved)
    rest = [line(walk.step(action)) for action in actions[half:]]
    if walk.transcript() != transcript:
        yield f"taking a snapshot changes the episode {difference(transcript, walk.transcript())}"
    fresh = Walk(walk.entry, walk.task, walk.seed, walk.steps)
    fresh.reset()
    pickled = "restore of a pickled snapshot in another instance"
    for name, one, snapshot in (("restore", walk, saved), (pickled, fresh, pickle.loads(stored))):
        restored = timed(lambda one=one, snapshot=snapshot: one.env.restore(snapshot))  # type: ignore[attr-defined, misc]
        if restored is None:
            yield f"{name} returns no observation, so that the state cannot be checked: return the observation"
        elif restored != observation:
            yield f"{name} shows another observation than at the snapshot: {restored!r:.60} and {observation!r:.60}"
        if [line(one.step(action)) for action in actions[half:]] != rest:
            yield f"{name} leads to another state than a replay of the same {half} actions"


def _check_pickle(walk: Walk) -> Iterator[str]:
    """An instance can be pickled at any moment, and its copy continues as the original would."""
    pickle.loads(pickle.dumps(walk.env))
    walk.run()
    actions, transcript, half = list(walk.actions), walk.transcript(), len(walk.actions) // 2
    walk.again(actions[:half])
    walk.env = pickle.loads(pickle.dumps(walk.env))
    for action in actions[half:]:
        walk.step(action)
    if walk.transcript() != transcript:
        yield f"a pickled copy continues differently {difference(transcript, walk.transcript())}"


def _check_words(walk: Walk) -> Iterator[str]:
    """Prompts are texts; `parse` reads every listed action from the text of `answer`; no text makes `parse` raise."""
    prompt = prompt_of(walk.entry)
    walk.run()
    past = [PastTurn(o, a) for o, a in zip(walk.observations[:-1], walk.actions, strict=True)]
    first = walk.observations[0]
    texts = [prompt.first(first)]
    texts += [prompt.turn(observation) for observation in walk.observations]
    texts += [prompt.window(first, past[max(0, t - 2) : t], t, o) for t, o in enumerate(walk.observations)]
    if not all(isinstance(text, str) for text in texts):
        yield "a prompt is no text"
    for observation in walk.observations:
        for action in observation.actions:
            parsed = prompt.parse(prompt.answer(action), observation)
            if parsed[:3] != (action, True, Status.OK):
                yield f"parse(answer({action!r})) gives {tuple(parsed)!r}"
                return
    for text in (*GARBAGE, "<action>", "</action><action>", "<think>"):
        parsed = prompt.parse(text, first)
        if not isinstance(parsed.action, str) or parsed.status not in (Status.OK, Status.PARSE_ERROR):
            yield f"parse({text[:40]!r}) gives {tuple(parsed)!r}"


def _check_garbage(walk: Walk) -> Iterator[str]:
    """No text makes the environment raise, and the same text gives the same result each time."""
    for action in GARBAGE:
        try:
            first = walk.again([action]).transcript()
            if walk.again([action]).transcript() != first:
                yield f"the action {action[:40]!r} is answered differently each time"
        except Exception as error:  # noqa: BLE001
            raised = f"{type(error).__name__}: {error}; return an observation instead{raised_at(error)}"
            yield f"the action {action[:40]!r} raised {raised}"


def _check_experts(entry: Entry[EnvironmentFile], task: Task, steps: int) -> Iterator[str]:
    """The first moves of every expert in `EXPERTS` are accepted."""
    make = entry.hooks.expert
    if make is None:
        return
    for name in entry.hooks.experts or ():
        walk = Walk(entry, task, 0, steps)
        observation = walk.reset()
        player = timed(functools.partial(make, walk.env, name, 0))
        player.reset(task)
        for _ in range(min(steps, 10)):
            move = timed(lambda player=player, observation=observation: player.act(observation))  # type: ignore[misc]
            result = walk.step(move.action)
            if _refused(result):
                yield f"{name} plays {move.action!r}, which is refused"
            if result.terminated or result.truncated:
                break
            observation = result.observation


def _check_gymnasium(entry: Entry[EnvironmentFile]) -> Iterator[str]:
    """The findings of Gymnasium's own checker."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on boxes and rendering
        env = GymEnv(entry)
        try:
            gymnasium_check(env)
        except AssertionError as error:
            yield str(error).partition("\n")[0]
        finally:
            env.close()
