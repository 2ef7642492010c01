"""Which prompt of a program continues which: by hand, and against the chat template."""

import numpy as np
import pytest

from agentrl.chat import Chat
from agentrl.programs.conversations import Conversations
from agentrl.types import Generation, Message, ToolCall
from tests.toys.language_model import language_model

ASKED = Message("user", "2 + 2?")
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(language_model().tokenizer)


def said(chat: Chat, text: str, *, end: bool = True) -> Generation:
    ids = chat.answer(text, end=end)
    return Generation(text=text, token_ids=ids, logprobs=np.full(len(ids), -0.5), finish="stop" if end else "length")


def reply(text: str, *calls: ToolCall) -> Message:
    return Message("assistant", text, "", calls)


def test_a_prompt_that_extends_an_answered_one_continues_its_sampled_tokens(chat):
    talk = Conversations(chat)
    first = talk.prompt([ASKED], ())
    assert first.after is None and first.added == len(first.token_ids)
    assert first.token_ids.tolist() == chat.start([ASKED]).tolist()
    one = talk.add(first, said(chat, "4"), reply("4"))
    second = talk.prompt([ASKED, reply("4"), Message("user", "sure?")], ())
    assert second.after is one and second.new == (Message("user", "sure?"),)
    expected = [*first.token_ids, *one.generation.token_ids, *chat.turn(Message("user", "sure?"))]
    assert second.token_ids.tolist() == expected and second.added == len(chat.turn(Message("user", "sure?")))


def test_what_the_program_rewrote_begins_a_new_context(chat):
    talk = Conversations(chat)
    talk.add(talk.prompt([ASKED], ()), said(chat, "4"), reply("4"))
    rewritten = (
        [Message("user", "2+2?"), reply("4"), ASKED],
        [ASKED, reply("5"), ASKED],  # other words of the model than it said
        [Message("system", "be brief"), ASKED, reply("4"), ASKED],
        [ASKED, reply("4"), ASKED, reply("made up"), ASKED],
    )
    for messages in rewritten:
        prompt = talk.prompt(messages, ())
        assert prompt.after is None and prompt.added == len(prompt.token_ids), messages
    assert talk.prompt([ASKED, reply("4"), ASKED], [TOOL]).after is None  # the template writes the tools


def test_conversations_by_turns_and_two_continuations_of_one(chat):
    talk = Conversations(chat)
    main = talk.add(talk.prompt([ASKED], ()), said(chat, "4"), reply("4"))
    side = talk.add(talk.prompt([Message("user", "a poem")], ()), said(chat, "no"), reply("no"))
    left = talk.prompt([ASKED, reply("4"), Message("user", "why?")], ())
    right = talk.prompt([ASKED, reply("4"), Message("user", "how?")], ())
    beside = talk.prompt([Message("user", "a poem"), reply("no"), Message("user", "please")], ())
    assert [prompt.after for prompt in (left, right, beside)] == [main, main, side]


def test_tool_calls_come_back_as_clients_send_them(chat):
    talk = Conversations(chat)
    text = 'so <tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    sent = reply("so", ToolCall("call_0", "add", '{"a": 1, "b": 2}'))
    step = talk.add(talk.prompt([ASKED], [TOOL]), said(chat, text), sent)
    back = reply("so ", ToolCall("other id", "add", '{"a":1,"b":2}'))
    prompt = talk.prompt([ASKED, back, Message("tool", "3", "add")], [TOOL])
    assert prompt.after is step
    assert prompt.token_ids[len(prompt.token_ids) - prompt.added :].tolist() == chat.turn(Message("tool", "3")).tolist()
    changed = reply("so", ToolCall("call_0", "add", '{"a": 1, "b": 3}'))
    assert talk.prompt([ASKED, changed, Message("tool", "3")], [TOOL]).after is None


def test_an_answer_that_was_cut_off_is_closed_before_it_is_continued(chat):
    talk = Conversations(chat)
    first = talk.prompt([ASKED], ())
    step = talk.add(first, said(chat, "well", end=False), reply("well"))
    prompt = talk.prompt([ASKED, reply("well"), Message("user", "go on")], ())
    assert prompt.after is step
    turn = chat.turn(Message("user", "go on"))
    assert prompt.token_ids[len(prompt.token_ids) - prompt.added :].tolist() == [chat.end_id, *turn]


def test_a_prompt_extends_a_step_whose_tokens_it_cannot_continue(chat):
    """A template that drops thoughts of earlier turns, or a turn that the program added to the history."""
    talk = Conversations(chat)
    step = talk.add(talk.prompt([ASKED], ()), said(chat, "4"), reply("4"))
    added = talk.prompt([ASKED, reply("4"), ASKED, reply("made up"), ASKED], ())
    assert added.after is None and added.extends is step

    class Rewrites(Chat):
        def after(self, path, *messages, tools=False):
            raise ValueError("the template rewrites earlier turns")

    talk.chat = Rewrites(chat.tokenizer)
    rewritten = talk.prompt([ASKED, reply("4"), Message("user", "sure?")], ())
    assert rewritten.after is None and rewritten.extends is step
    assert rewritten.added == len(rewritten.token_ids)
    assert talk.prompt([Message("user", "2+2?"), reply("4"), ASKED], ()).extends is None
    talk.forget(step)
    assert talk.prompt([ASKED, reply("4"), ASKED], ()).extends is None


def test_of_two_equal_answers_the_first_asked_is_continued_whichever_came_first(chat):
    for order in ((0, 1), (1, 0)):
        talk = Conversations(chat)
        prompt = talk.prompt([ASKED], ())
        steps = {number: talk.add(prompt, said(chat, "4"), reply("4"), number, 1) for number in order}
        assert talk.prompt([ASKED, reply("4"), ASKED], ()).after is steps[0]


def test_a_forgotten_step_is_continued_by_nothing_and_one_that_is_continued_stays(chat):
    talk = Conversations(chat)
    gone = talk.add(talk.prompt([ASKED], ()), said(chat, "4"), reply("4"))
    talk.forget(gone)
    assert talk.steps == [] and talk.prompt([ASKED, reply("4"), ASKED], ()).after is None
    kept = talk.add(talk.prompt([ASKED], ()), said(chat, "4"), reply("4"))
    talk.add(talk.prompt([ASKED, reply("4"), ASKED], ()), said(chat, "5"), reply("5"))
    talk.forget(kept)
    assert talk.steps[0] is kept
