"""Does an environment keep the promises of `agentrl.env.protocol`? Stricter than Gymnasium's checker, which it runs
too.

Random walks over some tasks; every broken promise becomes one sentence. It backs `agentrl check ENV`.
"""

import copy
import functools
import json
import pickle
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from gymnasium.utils.env_checker import check_env as gymnasium_check

from agentrl import catalogue
from agentrl.config import Entry, resolve
from agentrl.env import (
    Delegates,
    Env,
    EnvironmentFile,
    Past,
    Snapshots,
    checked_observation,
    checked_result,
    deadline,
    prompt_of,
    tasks_of,
)
from agentrl.gym.environment import GymEnv
from agentrl.tool import random_action
from agentrl.types import EnvFault, Observation, Reply, Status, StepResult, Task

CALL_S = 30.0  # a call that takes longer hangs
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
    """The promises an environment breaks, one sentence each; empty if it keeps them all.

    Args:
        entry: a catalogue entry, an environment's module, or its name.
        config: its options, where `entry` is a module or a name; default: the defaults.
        tasks: how many tasks to walk, spread over the list.
        steps: longest walk.
        seed: of the walks.
    """
    subject = _entry(entry, config)
    findings = list(_guarded("the task list", lambda: _check_list(subject)))
    if findings:
        return findings
    listed = tasks_of(subject)
    chosen = sorted({round(i * (min(len(listed), 1 << 20) - 1) / max(1, tasks - 1)) for i in range(tasks)})
    for task in [listed[i] for i in chosen]:
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
    return list(dict.fromkeys(findings))


def _entry(entry: Entry[EnvironmentFile] | ModuleType | str, config: Any) -> Entry[EnvironmentFile]:
    if isinstance(entry, Entry):
        return entry
    if isinstance(entry, str):
        named = resolve(EnvironmentFile, {"name": entry})
        return named if config is None else named._replace(config=config)
    file = catalogue.read(entry, EnvironmentFile)
    return Entry(entry.__name__, file, file.config() if config is None else config)


def _guarded(where: str, check: Callable[[], Iterator[str]]) -> Iterator[str]:
    """The check's findings, and what it stumbles over as one more."""
    try:
        for finding in check():
            yield f"{where}: {finding}"
    except EnvFault as fault:
        yield f"{where}: {fault}"
    except Exception as error:  # noqa: BLE001  whatever an environment raises is a finding
        yield f"{where}: raised {type(error).__name__}: {' '.join(str(error).split())[:300]}"


def timed(call: Callable[[], Any]) -> Any:
    """The call's value, or EnvFault if it hangs."""
    with deadline(CALL_S):
        return call()


@dataclass
class Walk:
    """A random walk of one task, the same for the same seed."""

    entry: Entry[EnvironmentFile]
    task: Task
    seed: int
    steps: int
    env: Env = field(init=False)
    seen: list[Observation] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    results: list[StepResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.env = timed(lambda: self.entry.hooks.make(self.entry.config))

    def reset(self) -> Observation:
        """Start the task."""
        self.seen, self.actions, self.results = [], [], []
        self.seen.append(checked_observation(timed(lambda: self.env.reset(self.task))))
        return self.seen[0]

    def step(self, action: str) -> StepResult:
        """One action. Every agent that the environment calls is answered for as lost, since nobody plays it here."""
        result = checked_result(timed(lambda: self.env.step(action)))
        while errands := result.info.get("errands"):
            if not isinstance(self.env, Delegates):
                raise EnvFault("it sends errands and has no method `returned(replies)` to hear what came of them")
            replies = tuple(Reply("", Status.ENV_ERROR) for _ in errands)
            result = checked_result(timed(functools.partial(self.env.returned, replies)))
        self.actions.append(action)
        self.results.append(result)
        self.seen.append(result.observation)
        return result

    def run(self, steps: int | None = None) -> "Walk":
        """Reset, then random listed actions, or calls of the tools on offer, to the end of episode or walk."""
        self.reset()
        rng = random.Random(self.seed)
        for _ in range(self.steps if steps is None else steps):
            result = self.step(self._drawn(rng))
            if result.terminated or result.truncated:
                break
        return self

    def _drawn(self, rng: random.Random) -> str:
        seen = self.seen[-1]
        if seen.tools and not seen.actions:
            return random_action(seen, np.random.default_rng(rng.getrandbits(32)))
        return rng.choice(seen.actions or GARBAGE)

    def again(self, actions: Sequence[str]) -> "Walk":
        """Reset, then these actions."""
        self.reset()
        for action in actions:
            self.step(action)
        return self

    def told(self) -> list[str]:
        """All that was told, for comparisons."""
        return [repr(self.seen[0]), *map(line, self.results)]


def line(result: StepResult) -> str:
    """A result for comparisons; the order of info does not matter."""
    return repr((*result[:4], sorted(result.info.items())))


def difference(a: Sequence[str], b: Sequence[str]) -> str:
    """Where two transcripts part: the step and both sides, shortened."""
    step, x, y = next((i, x, y) for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    at = next((i for i, (p, q) in enumerate(zip(x, y, strict=False)) if p != q), min(len(x), len(y)))
    return f"at step {step}: ...{x[max(0, at - 20) : at + 40]!r} and ...{y[max(0, at - 20) : at + 40]!r}"


def _check_list(entry: Entry[EnvironmentFile]) -> Iterator[str]:
    """Tasks: there are some, the same ones twice, with keys of their own that find them, picklable."""
    first, second = tasks_of(entry), entry.hooks.tasks(entry.config)
    some = [first[i] for i in range(min(len(first), 200))]
    if len(first) != len(second) or some != [second[i] for i in range(len(some))]:
        yield "tasks(config) gives another list the second time"
    keys = [task.key for task in some]
    if len(set(keys)) < len(keys):
        yield f"two tasks have the key {next(k for k in keys if keys.count(k) > 1)!r}: keys must be unique"
    if pickle.loads(pickle.dumps(some[0])) != some[0] or json.loads(json.dumps(dict(some[0].params))) is None:
        yield "a task does not survive pickling"
    if entry.hooks.find is not None and entry.hooks.find(entry.config, keys[-1]) != some[-1]:
        yield f"find(config, {keys[-1]!r}) gives another task"
    if entry.hooks.kind is not None and not isinstance(entry.hooks.kind(some[0]), str):
        yield "kind(task) is no text"


def _check_walk(walk: Walk) -> Iterator[str]:
    """Listed actions are accepted, and so is a step after the end."""
    walk.run()
    for turn, (action, result) in enumerate(zip(walk.actions, walk.results, strict=True)):
        if action in walk.seen[turn].actions and result.info.get("status", Status.OK) != Status.OK:
            yield f"the listed action {action!r} was refused at step {turn}"
    if walk.results and (walk.results[-1].terminated or walk.results[-1].truncated):
        try:
            walk.step(walk.seen[-1].actions[0] if walk.seen[-1].actions else "look")
        except Exception as error:  # noqa: BLE001
            yield f"a step after the end raised {type(error).__name__}: {error}; answer in words"


def _check_again(walk: Walk) -> Iterator[str]:
    """The same task and actions give the same bytes: in this instance after another episode, in a new one,
    and
    whatever the state of the global random generators."""
    told = walk.run().told()
    actions = list(walk.actions)
    random.seed(walk.seed + 1)
    np.random.seed(walk.seed + 1)  # noqa: NPY002  the global generator is what is tested
    once_more = walk.again(actions).told()
    if once_more != told:
        yield f"the same task played again in one instance differs {difference(told, once_more)}"
    other = Walk(walk.entry, copy.deepcopy(walk.task), walk.seed, walk.steps).again(actions).told()
    if other != told:
        yield f"the same task in another instance differs {difference(told, other)}"
    for one in (walk.env, walk.env):
        timed(one.close)  # twice: closing what is closed is allowed


def _check_snapshot(walk: Walk) -> Iterator[str]:
    """A snapshot goes back to where it was taken, in any instance, as often as wanted, and pickled."""
    walk.run()
    actions, told, half = list(walk.actions), walk.told(), len(walk.actions) // 2
    walk.again(actions[:half])
    if not isinstance(walk.env, Snapshots):
        return
    saved, there = timed(walk.env.snapshot), walk.seen[-1]
    stored = pickle.dumps(saved)
    rest = [line(walk.step(action)) for action in actions[half:]]
    if walk.told() != told:
        yield f"taking a snapshot changes the episode {difference(told, walk.told())}"
    fresh = Walk(walk.entry, walk.task, walk.seed, walk.steps)
    fresh.reset()
    pickled = "restore of a pickled snapshot in another instance"
    for name, one, snapshot in (("restore", walk, saved), (pickled, fresh, pickle.loads(stored))):
        seen = timed(lambda one=one, snapshot=snapshot: one.env.restore(snapshot))  # type: ignore[attr-defined, misc]
        if seen is None:
            yield f"{name} returns no observation, so that nobody can see whether it is the right state: return it"
        elif seen != there:
            yield f"{name} shows another observation than at the snapshot: {seen!r:.60} and {there!r:.60}"
        if [line(one.step(action)) for action in actions[half:]] != rest:
            yield f"{name} is not where a replay of the same {half} actions is"


def _check_pickle(walk: Walk) -> Iterator[str]:
    """An instance can be pickled at any moment, and the copy goes on as the original would."""
    pickle.loads(pickle.dumps(walk.env))
    walk.run()
    actions, told, half = list(walk.actions), walk.told(), len(walk.actions) // 2
    walk.again(actions[:half])
    walk.env = pickle.loads(pickle.dumps(walk.env))
    for action in actions[half:]:
        walk.step(action)
    if walk.told() != told:
        yield f"a pickled copy goes on differently {difference(told, walk.told())}"


def _check_words(walk: Walk) -> Iterator[str]:
    """Prompts are texts; every listed action survives answer and parse; no answer makes parse raise."""
    prompt = prompt_of(walk.entry)
    walk.run()
    past = [Past(o, a) for o, a in zip(walk.seen[:-1], walk.actions, strict=True)]
    texts = [prompt.first(walk.seen[0])]
    texts += [prompt.turn(observation) for observation in walk.seen]
    texts += [prompt.window(walk.seen[0], past[max(0, t - 2) : t], t, o) for t, o in enumerate(walk.seen)]
    if not all(isinstance(text, str) for text in texts):
        yield "a prompt is no text"
    for observation in walk.seen:
        for action in observation.actions:
            parsed = prompt.parse(prompt.answer(action), observation)
            if parsed[:3] != (action, True, Status.OK):
                yield f"parse(answer({action!r})) gives {tuple(parsed)!r}"
                return
    for text in (*GARBAGE, "<action>", "</action><action>", "<think>"):
        parsed = prompt.parse(text, walk.seen[0])
        if not isinstance(parsed.action, str) or parsed.status not in (Status.OK, Status.PARSE_ERROR):
            yield f"parse({text[:40]!r}) gives {tuple(parsed)!r}"


def _check_garbage(walk: Walk) -> Iterator[str]:
    """Whatever is sent is answered in words, and alike each time."""
    for action in GARBAGE:
        try:
            first = walk.again([action]).told()
            if walk.again([action]).told() != first:
                yield f"the action {action[:40]!r} is answered differently each time"
        except Exception as error:  # noqa: BLE001
            yield f"the action {action[:40]!r} raised {type(error).__name__}: {error}; answer in words"


def _check_experts(entry: Entry[EnvironmentFile], task: Task, steps: int) -> Iterator[str]:
    """Every expert of the list plays."""
    make = entry.hooks.expert
    if make is None:
        return
    for name in entry.hooks.experts or ():
        walk = Walk(entry, task, 0, steps)
        observation = walk.reset()
        player = timed(functools.partial(make, walk.env, name, 0))
        player.reset(task)
        for _ in range(min(steps, 10)):
            move = timed(lambda player=player, seen=observation: player.act(seen))  # type: ignore[misc]
            result = walk.step(move.action)
            if result.info.get("status", Status.OK) != Status.OK:
                yield f"{name} plays {move.action!r}, which is refused"
            if result.terminated or result.truncated:
                break
            observation = result.observation


def _check_gymnasium(entry: Entry[EnvironmentFile]) -> Iterator[str]:
    """What Gymnasium's own checker finds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # advice on boxes and rendering
        env = GymEnv(entry)
        try:
            gymnasium_check(env)
        except AssertionError as error:
            yield str(error).partition("\n")[0]
        finally:
            env.close()
