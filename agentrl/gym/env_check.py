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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np
from gymnasium.utils.env_checker import check_env as gymnasium_check

from agentrl import catalogue
from agentrl.config import Entry, resolve
from agentrl.env import EnvironmentFile, PastTurn, Snapshots, prompt_of, tasks_of
from agentrl.gym.environment import GymEnv
from agentrl.gym.walk import GARBAGE, Walk, difference, line, timed
from agentrl.types import EnvFault, Status, StepResult, Task
from agentrl.user_code import raised_at

# The parts in which findings about the same exception differ.
PLACE_OR_ADVICE = re.compile(r"; return an observation instead| \(passive_env_checker\.py:\d+, in \w+\)")


class Untried(Exception):
    """A law cannot be tried on an environment; the message says why."""


@dataclass(frozen=True, kw_only=True)
class LawResult:
    """Does an environment keep one law?

    Attributes:
        law: a name of the law, such as `repeat`.
        text: the law, one sentence.
        state: `untried` if the law could not be tried on any task.
        findings: how the law is broken, one sentence each.
        why: why the law could not be tried; empty in the other states.
    """

    law: str
    text: str
    state: Literal["holds", "broken", "untried"]
    findings: Sequence[str] = ()
    why: str = ""


class _Found(NamedTuple):
    """One finding, or the reason why a law could not be tried; with both texts empty, the law was tried."""

    law: str
    finding: str = ""
    why: str = ""


NO_SNAPSHOTS = "the environment has no snapshots: branches carry out the recorded actions again (law `repeat`)"


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
    found = _try_all(_entry(entry, config), tasks, steps, seed)
    return _joined(list(dict.fromkeys(one.finding for one in found if one.finding)))


def check_laws(entry: Entry[EnvironmentFile], *, tasks: int = 4, steps: int = 60, seed: int = 0) -> list[LawResult]:
    """The result of each law of `check_env`, whose arguments these are.

    If the task list breaks its law, the other laws are not tried.
    """
    found = list(_try_all(entry, tasks, steps, seed))
    return [_result(law, text, [one for one in found if one.law == law]) for law, text in LAWS.items()]


def try_law(law: str, text: str, check: Callable[[], Iterator[str]]) -> LawResult:
    """The result of a law: `check` yields its findings, and raises `Untried` if the law cannot be tried.

    An exception of any other kind is one more finding.
    """
    return _result(law, text, list(_tried(law, "", check)))


def _result(law: str, text: str, found: Sequence[_Found]) -> LawResult:
    findings = _joined(list(dict.fromkeys(one.finding for one in found if one.finding)))
    if findings:
        return LawResult(law=law, text=text, state="broken", findings=findings)
    if any(not one.why for one in found):
        return LawResult(law=law, text=text, state="holds")
    why = found[0].why if found else "the tasks cannot be listed"
    return LawResult(law=law, text=text, state="untried", why=why)


def spread(listed: Sequence[Task], count: int) -> list[Task]:
    """At most `count` tasks, spread over the list; of an endless list, over its beginning."""
    last = min(len(listed), 1 << 20) - 1
    return [listed[i] for i in sorted({round(i * last / max(1, count - 1)) for i in range(count)})]


def _try_all(subject: Entry[EnvironmentFile], tasks: int, steps: int, seed: int) -> Iterator[_Found]:
    broken = False
    for found in _tried("list", "the task list", lambda: _check_list(subject)):
        broken |= bool(found.finding)
        yield found
    if broken:
        return
    listed = tasks_of(subject)
    for task in spread(listed, tasks):
        for law, check in _OF_A_TASK.items():
            walk = Walk(subject, task, seed, steps)
            yield from _tried(law, f"task {task.key}", functools.partial(check, walk))
    yield from _tried("experts", "an expert", lambda: _check_experts(subject, listed[0], steps))
    yield from _tried("gymnasium", "Gymnasium's checker", lambda: _check_gymnasium(subject))


def _tried(law: str, where: str, check: Callable[[], Iterator[str]]) -> Iterator[_Found]:
    try:
        for finding in _guarded(where, check):
            yield _Found(law, finding)
        yield _Found(law)
    except Untried as reason:
        yield _Found(law, why=str(reason))


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
    """The findings of a check; an exception that the check raises is one more finding. Only `Untried` goes through."""
    head = f"{where}: " if where else ""
    try:
        for finding in check():
            yield f"{head}{finding}"
    except Untried:
        raise
    except EnvFault as fault:
        yield f"{head}{fault}"
    except Exception as error:  # noqa: BLE001  whatever an environment raises is a finding
        yield f"{head}raised {type(error).__name__}: {' '.join(str(error).split())[:300]}{raised_at(error)}"


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
    if not isinstance(walk.env, Snapshots):
        raise Untried(NO_SNAPSHOTS)
    walk.run()
    actions, transcript, half = list(walk.actions), walk.transcript(), len(walk.actions) // 2
    walk.again(actions[:half])
    saved = timed(walk.env.snapshot)
    if saved is None:
        raise Untried(NO_SNAPSHOTS)
    observation = walk.observations[-1]
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
    if make is None or not entry.hooks.experts:
        raise Untried("the environment has no expert")
    for name in entry.hooks.experts:
        walk = Walk(entry, task, 0, steps)
        observation = walk.reset()
        player = timed(functools.partial(make, walk.env, name, 0))
        player.reset(task)
        for _ in range(min(steps, 10)):
            try:
                move = timed(lambda player=player, observation=observation: player.act(observation))  # type: ignore[misc]
            except ValueError as error:
                if not entry.hooks.adapts:
                    raise
                raise Untried(str(error)) from None  # the package has no answer that an expert could give
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


LAWS: Mapping[str, str] = MappingProxyType(
    {
        "list": "The task list is the same each time; keys are unique; tasks survive pickling and JSON.",
        "listed actions": "Listed actions are accepted, and a step after the end of an episode raises nothing.",
        "repeat": "The same task and actions give the same results: in one instance, and in a new instance.",
        "snapshot": "A snapshot restores the state in which it was taken, in any instance, more than once.",
        "pickle": "An instance can be pickled at any moment, and its copy goes on as the original would.",
        "words": "Prompts are texts, a listed action is read from its own text, and no text makes the parser raise.",
        "any text": "No text makes the environment raise, and the same text gives the same result each time.",
        "experts": "The first moves of each expert are accepted.",
        "gymnasium": "Gymnasium's own checker finds nothing.",
    }
)
_OF_A_TASK: Mapping[str, Callable[[Walk], Iterator[str]]] = MappingProxyType(
    {
        "listed actions": _check_walk,
        "repeat": _check_again,
        "snapshot": _check_snapshot,
        "pickle": _check_pickle,
        "words": _check_words,
        "any text": _check_garbage,
    }
)
