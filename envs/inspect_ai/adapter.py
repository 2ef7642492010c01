"""Plays tasks of inspect_ai in the Python that has it; see `agentrl.foreign.adapter_client`. No import of agentrl here.

In inspect_ai, the solvers of a task ask a model to generate. Here such a request becomes an observation, and the action
is returned to the solvers as the model's reply. Dataset, solvers, tools and scorers are inspect_ai's own.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import queue
import threading
from typing import Any

PACKAGES = {"inspect_ai": "inspect-ai"}
TEST_SHARE = 5  # on average, one sample in five is a test sample


def load(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with the task (`found`) and its samples; ValueError if the task cannot be loaded or played."""
    from inspect_ai._eval.loader import load_tasks
    from inspect_ai.util._display import init_display_type

    init_display_type("none")
    name = options["task"]
    try:
        found = load_tasks([name], options["options"])
    except (Exception, SystemExit) as error:  # noqa: BLE001  a task file may raise anything
        raise ValueError(f"env.task = {name!r} cannot be loaded: {' '.join(str(error).split())[:300]}") from None
    if len(found) != 1:
        raise ValueError(f"env.task = {name!r} names {len(found)} tasks: write FILE.py@TASK or PACKAGE/TASK")
    _check_options(found[0].name, options["options"])
    samples = list(found[0].dataset)
    if found[0].sandbox is not None or any(sample.sandbox is not None for sample in samples):
        raise ValueError(
            f"env.task = {name!r} needs a sandbox of inspect_ai, and agentrl has none: choose a task without a sandbox"
        )
    for position, sample in enumerate(samples):
        sample.id = position + 1 if sample.id is None else sample.id  # as inspect_ai numbers them
    return {"found": found[0], "samples": samples, **options}


def _check_options(name: str, given: dict[str, Any]) -> None:
    """Refuse arguments that the task does not have; inspect_ai would ignore them silently."""
    from inspect_ai._util.registry import registry_lookup

    function = registry_lookup("task", name)
    known = list(inspect.signature(function).parameters) if function is not None else list(given)
    unknown = [option for option in given if option not in known]
    if unknown:
        raise ValueError(f"env.options.{unknown[0]}: the task {name} takes {', '.join(known) or 'no options'}")


def is_test(sample_id: str) -> bool:
    """Does the sample with this id belong to the test split?"""
    return hashlib.sha256(sample_id.encode()).digest()[0] % TEST_SHARE == 0


class Episode:
    """One episode of one sample."""

    def __init__(self, world: dict[str, Any]) -> None:
        self.world = world
        self.events: queue.Queue[Any] = queue.Queue()
        self.reply: Any = None
        self.seen = 0
        self.shown: dict[str, Any] = {}

    def tasks(self) -> list[list[Any]]:
        """(position, id) of every sample of the split."""
        found = [[i, str(sample.id)] for i, sample in enumerate(self.world["samples"])]
        wanted = self.world["split"]
        return found if wanted == "all" else [[i, one] for i, one in found if is_test(str(one)) == (wanted == "test")]

    def tools(self, index: int) -> list[Any]:
        """The schemas of the tools of a sample's first request."""
        return list(self.reset(0, {"index": index}).get("tools", []))

    def reset(self, seed: int, params: dict[str, Any]) -> dict[str, Any]:
        """Start the task's solvers on a sample, up to their first request to the model."""
        sample = self.world["samples"][params["index"]]

        def play() -> None:
            try:
                self.events.put(("done", asyncio.run(self._play(sample)), None))
            except BaseException as error:  # noqa: BLE001  `reset` or `step`, which waits for an event, raises it
                self.events.put(("failed", error, None))

        threading.Thread(target=play, daemon=True).start()
        kind, content, self.reply = self.events.get()
        if kind == "request":
            return self._observe(*content)
        if kind == "failed":
            raise content
        raise RuntimeError(f"the sample ended before it asked the model: {_failure(content) or 'no request'}")

    async def _play(self, sample: Any) -> Any:
        from inspect_ai import eval_async
        from inspect_ai.model import get_model

        async def ask(messages: Any, tools: Any, choice: Any, config: Any) -> Any:
            reply: queue.Queue[Any] = queue.Queue()
            self.events.put(("request", (messages, tools), reply))
            return await asyncio.to_thread(reply.get)

        def grade(messages: Any, tools: Any, choice: Any, config: Any) -> Any:
            raise RuntimeError(
                "the task's scorer asks a model, and the policy would grade itself: choose a task whose scorer needs "
                "no model"
            )

        logs = await eval_async(
            self.world["found"],
            model=get_model("mockllm/model", custom_outputs=ask),
            model_roles={"grader": get_model("mockllm/grader", custom_outputs=grade)},
            sample_id=sample.id,
            epochs=1,
            log_dir="memory://agentrl",
            log_realtime=False,
            fail_on_error=True,
        )
        return logs[0]

    def _observe(self, messages: Any, tools: Any) -> dict[str, Any]:
        """The observation of a request: the messages since the last request, without the model's own replies."""
        new, self.seen = messages[self.seen :], len(messages) + 1  # + 1 for the reply to this request
        self.shown = {"text": "\n".join(_text(message) for message in new if message.role != "assistant")}
        if tools:
            self.shown["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.parameters.model_dump(exclude_none=True),
                    },
                }
                for tool in tools
            ]
        return self.shown

    def step(self, action: str) -> dict[str, Any]:
        """Answer the waiting request; returns the next request as an observation, or the scored end of the episode."""
        content, calls, error = _read(action) if "tools" in self.shown else (action, [], "")
        if error:
            return _result({**self.shown, "text": error}, 0.0, False, {"status": "parse_error"})
        self.reply.put(_output(content, calls))
        kind, found, self.reply = self.events.get()
        if kind == "request":
            return _result(self._observe(*found), 0.0, False, {})
        if kind == "failed":
            raise found
        if failure := _failure(found):
            raise RuntimeError(failure)
        signals = _scores(found.samples[0].scores or {})
        reward = next(iter(signals.values()), 0.0)
        info = {"signals": signals, "success": reward >= self.world["solved"]}
        return _result({"text": "The sample is scored."}, reward, True, info)


def _text(message: Any) -> str:
    """The text of a message; for the error of a tool, the text of the error."""
    error = getattr(message, "error", None)
    return str(message.text) if error is None else f"error: {error.message}"


def _failure(log: Any) -> str:
    """Why the sample failed, as a sentence; empty if it succeeded."""
    if log.status == "success" and log.samples and log.samples[0].error is None:
        return ""
    error = log.error or (log.samples[0].error if log.samples else None)
    return " ".join(str(getattr(error, "message", "") or f"the evaluation's status is {log.status}").split())[:500]


def _scores(scores: dict[str, Any]) -> dict[str, float]:
    """The numbers of the scorers, in their order: C is 1, P is 0.5, I and N are 0.

    A scorer with several values gives one number per value.
    """
    from inspect_ai.scorer import value_to_float

    number, found = value_to_float(), {}
    for name, score in scores.items():
        values = score.value.items() if isinstance(score.value, dict) else [("", score.value)]
        for part, value in values:
            found[f"{name}.{part}" if part else name] = float(number(value))
    return found


def _result(seen: dict[str, Any], reward: float, over: bool, info: dict[str, Any]) -> dict[str, Any]:
    return {"observation": seen, "reward": reward, "terminated": over, "truncated": False, "info": info}


def _read(action: str) -> tuple[str, list[Any], str]:
    """(content, tool calls, error) of a tool environment's action (`agentrl.tool.action`); the error may be empty."""
    try:
        turn = json.loads(action)
    except ValueError:
        turn = None
    if not isinstance(turn, dict) or not ({"calls", "answer"} & set(turn)):
        return action, [], ""
    if "answer" in turn:
        return str(turn["answer"]), [], ""
    errors = [call["error"] for call in turn["calls"] if "error" in call]
    return ("", [], f"error: {errors[0]}") if errors else ("", turn["calls"], "")


def _output(content: str, calls: list[Any]) -> Any:
    """What a model of inspect_ai returns. Without `usage`, inspect_ai would fetch a tokenizer to count tokens."""
    from inspect_ai.model import ChatCompletionChoice, ChatMessageAssistant, ModelOutput, ModelUsage
    from inspect_ai.tool import ToolCall

    made = [
        ToolCall(id=f"call_{i}", function=one["name"], arguments=one["arguments"]) for i, one in enumerate(calls)
    ] or None
    message = ChatMessageAssistant(content=content, tool_calls=made)
    choice = ChatCompletionChoice(message=message, stop_reason="tool_calls" if made else "stop")
    return ModelOutput(model="agentrl", choices=[choice], usage=ModelUsage())
