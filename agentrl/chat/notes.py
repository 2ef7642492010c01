"""What a user should know of a chat template: where chats that are continued differ from what it would write anew."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentrl.chat.template import Chat
from agentrl.chat.thoughts import SPELLINGS
from agentrl.chat.turns import common
from agentrl.types import Message


def template_report(chat: Chat) -> str:
    """Remarks on a chat template, one per line; empty if it only appends and needs no care."""
    turns = chat.turns
    lines = []
    if turns.rewrites:
        lines.append(
            "the chat template rewrites earlier messages when later ones follow, so the context `full` cannot continue "
            "a chat: use context.name=last_k"
        )
    if turns.moves_system and not turns.rewrites:
        lines.append(
            "the chat template writes the system message or the tools before the last question. With context `full` "
            "they stay before the first one; context `last_k` writes each prompt from the start"
        )
    if turns.drops_thoughts:
        lines.append(
            "the chat template drops the thinking of turn 0 when turn 1 begins. With context `full`, the prompt keeps "
            "all sampled tokens, so the model sees its thinking in later turns; with context `last_k` it does not"
        )
    if turns.end != turns.past_end:
        lines.append(
            f"the model ends its answers with {turns.end}, and the chat template writes {turns.past_end} behind "
            f"earlier answers; with context `full`, the prompt keeps the sampled {turns.end}"
        )
    if not turns.end:
        ends = " or ".join(turns.next_words.values())
        lines.append(f"the chat template closes no turn: an answer ends with the mark of the next message ({ends})")
    if chat.thought:
        lines.append(
            f"every prompt opens a thought ({chat.thought.strip()}): an answer that does not close it is no answer"
        )
    if not turns.has_system_role:
        lines.append(
            "the chat template writes no system message: its text becomes the beginning of the first user message"
        )
    if chat.reads_clock:
        lines.append(f"the chat template writes the date, which stays {chat.now:%Y-%m-%d}")
    return "\n".join(lines)


def rewritten(chat: Chat, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
    """Where a chat that is made turn by turn differs from the whole chat, apart from thoughts and end tokens.

    Args and returns: see `difference`.
    """
    decode = chat.tokenizer.decode
    made, whole = (
        _without_thoughts(chat, decode(ids))
        for ids in (
            _piece_by_piece(chat, messages, tools)[:-1],
            chat.encode(chat.render(messages, reply=False, tools=tools)).tolist(),
        )
    )
    if whole.startswith(made):
        return ""
    place = common(made, whole)
    return f"{made[place : place + 40]!r} | {whole[place : place + 40]!r}"


def _without_thoughts(chat: Chat, text: str) -> str:
    for tags in SPELLINGS:
        text = re.sub(rf"\s*{re.escape(tags.opening)}.*?{re.escape(tags.closing)}\s*", "", text, flags=re.S)
    text = re.sub(r"\s+", "", text)  # templates trim the blanks around thoughts
    return text.replace(chat.turns.end, chat.turns.past_end) if chat.turns.end else text


def difference(chat: Chat, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
    """The first place where a chat that is made turn by turn differs from the whole chat as the template writes it.

    Args:
        chat: the template.
        messages: a chat whose last message is the assistant's.
        tools: the schemas of its tools.

    Returns:
        The texts from there on, as "... | ...", each shortened; empty if both have the same tokens up to the last
        answer's end.
    """
    decode = chat.tokenizer.decode
    made = _piece_by_piece(chat, messages, tools)[:-1]  # another end token may stand behind the last answer
    whole = chat.encode(chat.render(messages, reply=False, tools=tools)).tolist()
    place = next((i for i, (a, b) in enumerate(zip(made, whole, strict=False)) if a != b), min(len(made), len(whole)))
    if place == len(made):
        return ""
    return f"{decode(made[place : place + 12])!r} | {decode(whole[place : place + 12])!r}"


def _piece_by_piece(chat: Chat, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[int]:
    """The ids of a chat, each message encoded on its own."""
    ids: list[int] = []
    waiting: list[Message] = []
    started = False
    for message in messages:
        if message.role != "assistant":
            waiting.append(message)
            continue
        path = np.array(ids, np.int64)
        added = chat.after(path, *waiting, tools=bool(tools)) if started else chat.start(waiting, tools)
        ids += [*added.tolist(), *chat.answer(message.content, prompt=np.array([*ids, *added], np.int64)).tolist()]
        waiting, started = [], True
    return ids
