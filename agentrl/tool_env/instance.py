"""A tool environment from a plain class, or from functions: typed public methods are the tools.

    class Adder:
        def reset(self, a: int, b: int) -> str: ...       # one row in, the first message out
        def add(self, a: int, b: int) -> int: ...         # a tool
        def reward(self, answer: str) -> float: ...       # asked when the episode ends

    Config, make, tasks, prompt = environment(Adder, rows=[{"a": 1, "b": 2}, ...])

A new object is made for every episode, so what a method stores in `self` is the episode's state. docs/tools.md tells
the rest.
"""

import asyncio
import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agentrl.catalogue import nearest
from agentrl.env import Verdict
from agentrl.tool import Call, Calls, Malformed, ToolError, ToolFault, ToolSpec, Turn, as_words, run_all, settled
from agentrl.tool import action as tool_action
from agentrl.tool_env.rewards import STEP, TERMINAL, Scored, pick, score, takes
from agentrl.tool_env.setup import Setup, ToolConfig
from agentrl.types import Message, Observation, Status, StepResult, Task

OVER = "The episode is over."
NOTHING = Turn()
ERROR_CHARS = 2000  # of an exception's words
# What a tool's code may raise on the agent's account: anything but what ends us.
TOOLS_RAISE = (Exception, SystemExit, asyncio.CancelledError)


class Done(NamedTuple):
    """One call that was carried out, as rewards see it; `ok` is False where the result is a complaint."""

    name: str
    arguments: Mapping[str, Any]
    result: str
    ok: bool


class ToolEnv:
    """An `Env` over one object of a user's class and its tools. Actions are those of `agentrl.tool.action`."""

    def __init__(self, setup: Setup, config: ToolConfig) -> None:
        self.setup, self.config = setup, config
        self._own: list[Any] | None = None  # tools that keep state; None before they are made
        self._specs: dict[str, ToolSpec] = {}
        self._begin(Task(key="", env=setup.env_name))
        self.over = True

    def _begin(self, task: Task) -> None:
        self.task, self.over = task, False
        self.instance: Any = None
        self.log: list[Done] = []
        self.texts: list[str] = []
        self.answer = ""
        self.digest = ""
        self.success = False

    def reset(self, task: Task) -> Observation:
        """A new object of the class; tools that keep state forget it."""
        self._close_instance()
        self._begin(task)
        self._tools()
        for tool in self._own or ():
            tool.reset()
        self.instance = self.setup.instance(self.config)
        row = {"seed": task.seed, **task.params}
        said: Any = None
        if hasattr(self.instance, "reset"):
            given = pick(takes(self.instance.reset), row, f"{type(self.instance).__name__}.reset")
            said = settled(self.instance.reset(**given))
        return self._first(said if said is not None else row.get("prompt"))

    def _first(self, said: Any) -> Observation:
        """The first observation: a text, or chat messages."""
        if isinstance(said, str):
            return self._observe(said)
        try:
            messages = tuple(Message(str(m["role"]), str(m["content"])) for m in said)
        except (TypeError, KeyError):
            raise ValueError(
                f"reset returned {type(said).__name__}, and the row has no 'prompt': return the first message, a text"
            ) from None
        return self._observe("\n".join(m.content for m in messages if m.role != "system"), messages)

    def _tools(self) -> dict[str, ToolSpec]:
        """The tools, made when first needed: never pickled."""
        if self._own is None:
            self._own = []
            self._specs = self.setup.sourced(self.config, self._own)
        return self._specs

    def step(self, action: str) -> StepResult:
        """Carry out the calls of a turn, or take the final answer."""
        if self.over:
            return StepResult(self._observe(OVER), 0.0, True, False, {"success": self.success})
        schemas = [spec.schema for spec in self._tools().values()]
        turn = tool_action.read(action, schemas)
        self.texts.append(turn.text)
        before = len(self.log)
        malformed = 0
        if turn.answer is not None:
            self.answer, self.over, observation = turn.answer, True, self._observe("", done=turn)
        else:
            results = self._carry_out(turn.items)
            malformed = sum(isinstance(item, Malformed) for item in turn.items)
            self.over = bool(getattr(self.instance, "done", False))
            observation = self._observe(*_told(results), done=turn)
        now = self.log[before:]
        info: dict[str, Any] = {
            "calls": len(now),
            "tool_errors": sum(not done.ok for done in now),
            "malformed": malformed,
            "status": Status.OK if all(done.ok for done in now) else Status.TOOL_ERROR,
        }
        scored = self._score(STEP, {"calls": now})
        if self.over:
            last = self._score(TERMINAL, {})
            scored = Scored({**scored.signals, **last.signals}, scored.reward + last.reward)
            self._judge(last)
        if scored.signals:
            info["signals"] = scored.signals
        return StepResult(observation, scored.reward, self.over, False, {**info, "success": self.success})

    def cut(self) -> Verdict:
        """The rewards of an episode that a limit ended, without a final answer."""
        if self.over:
            return Verdict(0.0, {})
        self.over = True
        last = self._score(TERMINAL, {})
        self._judge(last)
        return Verdict(last.reward, {"success": self.success, **({"signals": last.signals} if last.signals else {})})

    def _score(self, kind: Any, values: Mapping[str, Any]) -> Scored:
        rewards = self.setup.scoring(self.instance, kind)
        return score(rewards, {**self._values(), **values}, self.setup.weights)

    def _values(self) -> dict[str, Any]:
        """What rewards may ask for."""
        given = {"answer": self.answer, "calls": tuple(self.log), "turns": len(self.texts), "texts": tuple(self.texts)}
        return {"seed": self.task.seed, **self.task.params, **given}

    def _judge(self, last: Scored) -> None:
        """Success: the class's own word, else the first signal of the end reaching 1."""
        own = getattr(self.instance, "success", None)
        if own is not None:
            self.success = bool(settled(own(**pick(takes(own), self._values(), "success"))) if callable(own) else own)
        else:
            self.success = next(iter(last.signals.values()), 0.0) >= 1

    def _carry_out(self, items: Sequence[Call | Malformed]) -> list[Done | Malformed]:
        """What came of each item, in order; neighbouring calls of tools that wait run at once."""
        specs, results = self._tools(), list[Done | Malformed]()
        waiting: list[tuple[Call, Any]] = []
        for item in items:
            spec = specs.get(item.name) if isinstance(item, Call) else None
            prepared = self._prepare(item, spec) if isinstance(item, Call) else item
            if spec is not None and spec.waits and not isinstance(prepared, Done | Malformed):
                waiting.append((item, prepared()))  # type: ignore[arg-type]
                continue
            results += self._finish(waiting)
            waiting = []
            results.append(prepared if isinstance(prepared, Done | Malformed) else self._call(item, prepared))  # type: ignore[arg-type]
        results += self._finish(waiting)
        self.log += [result for result in results if isinstance(result, Done)]
        return results

    def _prepare(self, call: Call, spec: ToolSpec | None) -> Callable[[], Any] | Done:
        """The call with checked arguments, or the complaint about it."""
        if spec is None:
            return _complaint(call, f"there is no tool {call.name!r}{nearest(call.name, self._tools())}")
        try:
            arguments = spec.check(call.arguments)
        except ValueError as error:
            return _complaint(call, str(error))
        except Exception as error:  # noqa: BLE001  a type of the user's may refuse a value in any way
            return _raised(call, error)
        function = getattr(self.instance, spec.name) if spec.name in self.setup.methods else spec.function
        return lambda: function(**arguments)

    def _call(self, call: Call, function: Callable[[], Any]) -> Done:
        try:
            return Done(call.name, call.arguments, as_words(settled(function())), True)
        except ToolFault:
            raise
        except TOOLS_RAISE as error:
            return _raised(call, error)

    def _finish(self, waiting: Sequence[tuple[Call, Any]]) -> list[Done]:
        """The results of calls that wait, all at once."""
        values = run_all([work for _, work in waiting]) if waiting else []
        return [self._call(call, _giving(value)) for (call, _), value in zip(waiting, values, strict=True)]

    def _observe(self, text: str, messages: tuple[Message, ...] = (), *, done: Turn = NOTHING) -> Observation:
        """An observation; unless the class has its own word for it, the state is all that was done and seen so far."""
        action = tool_action.write(Calls(items=done.items, answer=done.answer))
        seen = "\0".join((self.digest, self.task.key if not self.digest else "", action, text))
        self.digest = hashlib.sha256(seen.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        own = getattr(self.instance, "state_key", None)
        key = str(own() if callable(own) else own) if own is not None else f"{text[:60]} #{self.digest}"
        tools = tuple(spec.schema for spec in self._tools().values())
        return Observation(text=text, state_key=key, tools=tools, messages=messages)

    def close(self) -> None:
        """Close the object and the tools that keep state."""
        self._close_instance()
        for tool in self._own or ():
            if hasattr(tool, "close"):
                tool.close()
        self._own, self._specs, self.over = None, {}, True

    def _close_instance(self) -> None:
        if hasattr(self.instance, "close"):
            self.instance.close()
        self.instance = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the tools, which are made again; those with a state of their own cannot go along."""
        if self._own and not self.over:
            raise TypeError("an episode whose tools keep state of their own cannot be pickled")
        return {**vars(self), "_own": None, "_specs": {}}


class SnapshotToolEnv(ToolEnv):
    """A tool environment whose objects can be copied."""

    KEPT = ("task", "over", "instance", "log", "texts", "answer", "digest", "success")

    def snapshot(self) -> dict[str, Any] | None:
        """A copy of the episode's state; None where tools keep a state of their own, which must be played again."""
        if self._own:
            return None
        return {**copy.deepcopy({name: getattr(self, name) for name in self.KEPT}), "seen": self._seen}

    def restore(self, snapshot: Mapping[str, Any]) -> Observation:
        """Go back to it."""
        for name, value in copy.deepcopy({name: snapshot[name] for name in self.KEPT}).items():
            setattr(self, name, value)
        seen: Observation = snapshot["seen"]
        self._seen = seen
        return seen

    def _observe(self, text: str, messages: tuple[Message, ...] = (), *, done: Turn = NOTHING) -> Observation:
        seen = self._seen = super()._observe(text, messages, done=done)
        return seen


def _giving(value: Any) -> Callable[[], Any]:
    """A function that returns the value, or raises it."""

    def give() -> Any:
        if isinstance(value, BaseException):
            raise value
        return value

    return give


def _told(results: Sequence[Done | Malformed]) -> tuple[str, tuple[Message, ...]]:
    """What a turn's calls brought, as one text and as a message each."""
    said = [(r.name, r.result) if isinstance(r, Done) else ("", r.message) for r in results]
    several = len(said) > 1
    text = "\n".join(f"{name}: {words}" if several and name else words for name, words in said)
    return text, tuple(Message("tool", words, name) for name, words in said)


def _complaint(call: Call, why: str) -> Done:
    return Done(call.name, call.arguments, f"error: {why}", False)


def _raised(call: Call, error: BaseException) -> Done:
    try:
        words = as_words(str(error))
    except Exception:  # noqa: BLE001  an exception whose own words fail
        words = ""
    shown = words if len(words) <= ERROR_CHARS else words[:ERROR_CHARS] + "..."
    if isinstance(error, ToolError) and shown:
        return _complaint(call, shown)
    return _complaint(call, f"{type(error).__name__}: {shown}" if shown else type(error).__name__)
