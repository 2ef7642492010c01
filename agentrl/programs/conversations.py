"""Turns the prompts of a program in one episode into steps, and finds the earlier step that each prompt continues.

The tokens of a prompt continue an earlier step if three things hold: the messages of the prompt begin with the messages
of the step's prompt and the step's reply; no message after this reply has the role assistant or system; and the chat
template can add the messages after the reply to earlier text. The tokens of such a prompt are the tokens up to the end
of the step's reply, as they were sampled, and then the tokens of the new messages. Any other prompt (the first prompt,
a rewritten history, a sub-agent's prompt) begins a new context. Prompts of several conversations may come in any order,
and two prompts may continue the same step.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from agentrl.chat import Chat, call_as_json
from agentrl.programs.chains import AnsweredRequest
from agentrl.rollout import StepRecord
from agentrl.tool import Format
from agentrl.tool_env import tool_request
from agentrl.types import Generation, Message, Observation, Status

Tools = Sequence[Mapping[str, Any]]


class Prompted(NamedTuple):
    """A prompt of the program, as tokens.

    Attributes:
        token_ids: [T] int64, all that the model reads.
        added: number of new tokens at the end of `token_ids`; the tokens before them are the path of the step `after`.
        after: the step whose tokens the prompt continues; None for a new context.
        extends: the step whose prompt and reply are the beginning of this prompt (of several such steps, the one with
            the longest prompt); None if there is no such step. If the prompt's tokens can continue this step, `after`
            is the same step. They cannot if the template rewrites earlier turns, or if a message after the reply has
            the role assistant or system; `after` is then None.
        messages: the whole prompt.
        new: the messages that the prompt adds.
        digest: digest of the prompt's messages and tools.
        form: the format of tool calls in the answer; None if the prompt has no tools.
    """

    token_ids: np.ndarray
    added: int
    after: StepRecord | None
    extends: StepRecord | None
    messages: tuple[Message, ...]
    new: tuple[Message, ...]
    digest: bytes
    form: Format | None = None


class _End(NamedTuple):
    """The end of a conversation after a reply.

    Attributes:
        step: the step of the reply.
        path: [T] int64, all tokens of the conversation up to the end of the reply.
        number: see `AnsweredRequest`.
    """

    step: StepRecord
    path: np.ndarray
    number: int


class Conversations:
    """The conversations of one episode.

    Args:
        chat: the tokenizer with its chat template.

    Attributes:
        calls: the answered prompts, in the order of the answers.
    """

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.calls: list[AnsweredRequest] = []
        self._ends: dict[bytes, _End] = {}  # digest of all messages up to the reply -> end of the conversation
        self._asked: dict[bytes, int] = {}  # digest of a prompt -> how often it was asked
        self._clock = 0

    @property
    def steps(self) -> list[StepRecord]:
        """The steps of the answered prompts, in the order of the answers."""
        return [call.step for call in self.calls]

    def tick(self) -> int:
        """The next number of the counter that orders the episode's requests and answers in time."""
        self._clock += 1
        return self._clock

    def prompt(self, messages: Sequence[Message], tools: Tools) -> Prompted:
        """The tokens of a prompt.

        Raises:
            ValueError: the chat template cannot write the messages.
        """
        digests = _digests(messages, tools)
        asked = tool_request(self.chat, messages, tools)
        extends: StepRecord | None = None
        for size in range(len(messages) - 1, 0, -1):
            new = tuple(messages[size:])
            end = self._ends.get(digests[size])
            if end is None:
                continue
            extends = extends or end.step
            if any(message.role in ("assistant", "system") for message in new):
                continue  # the program itself wrote a message of this role, so the step's tokens are not continued
            try:
                added = self.chat.after(end.path, *new, tools=bool(asked.schemas))
            except ValueError:  # the template rewrites earlier turns: the prompt is a new context
                break
            ids = np.concatenate([end.path, added])
            return Prompted(ids, len(added), end.step, extends, tuple(messages), new, digests[-1], asked.form)
        ids = self.chat.start(asked.messages, asked.schemas)
        return Prompted(ids, len(ids), None, extends, tuple(messages), tuple(messages), digests[-1], asked.form)

    def times(self, prompt: Prompted) -> int:
        """How often this prompt was asked before. Each call of this method counts the prompt once more."""
        count = self._asked.get(prompt.digest, 0)
        self._asked[prompt.digest] = count + 1
        return count

    def add(
        self, prompt: Prompted, generation: Generation, reply: Message, number: int = 0, begun: int | None = None
    ) -> StepRecord:
        """Store the step of an answered prompt.

        Args:
            prompt: the prompt.
            generation: the answer.
            reply: the answer as the program's next prompts will contain it.
            number, begun: see `AnsweredRequest`; by default the request came just now.
        """
        text = "\n".join(message.content for message in prompt.new)
        step = StepRecord(
            observation=Observation(text=text, messages=prompt.new),
            added=prompt.token_ids[len(prompt.token_ids) - prompt.added :],
            continues=prompt.after is not None,
            follows=prompt.after,
            generation=generation,
            action=generation.text,
            valid=True,
            status=Status.OK,
            calls=len(reply.calls),
            asked=prompt.messages,
        )
        begun = self.tick() if begun is None else begun
        self.calls.append(AnsweredRequest(step, prompt.extends, prompt.digest, number, begun, self.tick()))
        path = np.concatenate([prompt.token_ids, generation.token_ids])
        after = _extended(prompt.digest, reply)
        if after not in self._ends or self._ends[after].number > number:  # of equal answers, the first is continued
            self._ends[after] = _End(step, path, number)
        return step

    def forget(self, step: StepRecord) -> None:
        """Drop a step whose answer the program never read. A step that another prompt continues or extends stays."""
        if any(call.step.follows is step or call.extends is step for call in self.calls):
            return
        self.calls = [call for call in self.calls if call.step is not step]
        self._ends = {digest: end for digest, end in self._ends.items() if end.step is not step}


def _digests(messages: Sequence[Message], tools: Tools) -> list[bytes]:
    """Entry n is the digest of the tools and the first n messages."""
    found = [hashlib.sha256(json.dumps(list(tools), sort_keys=True).encode("utf-8", "surrogatepass")).digest()]
    for message in messages:
        found.append(_extended(found[-1], message))
    return found


def _extended(digest: bytes, message: Message) -> bytes:
    """The digest after one more message.

    The text of an assistant message is stripped, and ids of calls are left out, because clients change both.
    """
    content = message.content.strip() if message.role == "assistant" else message.content
    calls = [[call.name, call_as_json("", call.arguments)] for call in message.calls]
    text = json.dumps([message.role, content, calls], ensure_ascii=False)
    return hashlib.sha256(digest + text.encode("utf-8", "surrogatepass")).digest()
