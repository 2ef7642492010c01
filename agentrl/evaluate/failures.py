"""Counts failed answers and episodes by kind.

Each kind has an example and, if the user can do something about the failure, advice such as an option to change.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from agentrl.rollout import EpisodeRecord, StepRecord
from agentrl.types import Status

EXAMPLE_CHARS = 200
# First words of refusals in plain text. They count only if no action could be read in the answer.
REFUSALS = (
    "i can't help with",
    "i cannot help with",
    "i can't assist",
    "i cannot assist",
    "i'm unable to help",
    "i am unable to help",
    "i'm unable to assist",
    "i am unable to assist",
    "i'm not able to help with",
    "i won't help with",
    "i can't comply",
    "i cannot comply",
)
APOLOGIES = ("i'm sorry", "i am sorry", "sorry", "i apologize")  # may stand before a refusal
# Kinds of failed answers, each with the words for its line in a report. `kind_of_answer` decides the kind.
ANSWERS: Mapping[str, str] = MappingProxyType(
    {
        "refused": "were refused by the model or broken off by a content filter",
        "malformed_call": "held a tool call that the server could not read",
        "empty": "were empty",
        "thought": "were a thought without an action",
        "cut": "were cut off at the token limit",
        "no_format": "held an action, but lacked another part of the format",
        "no_action": "held no action that could be read",
        "bad_action": "held an action that is not allowed",
        "tool_error": "called a tool that failed",
    }
)
# Kinds of failed episodes, named by their ending, each with the words for its line in a report.
EPISODES: Mapping[str, str] = MappingProxyType(
    {
        "context_limit": "ended because the prompt does not fit the model's context",
        "refused": "ended because a content filter refused the prompt",
        "time_limit": "ended at limits.seconds",
        "env_error": "were lost to the environment or to the endpoint, and are not scored",
        "overlong_prompt": "have a first prompt that does not fit the model's context, and are not scored",
    }
)
# Kinds of answers that say little about how well a policy plays, in the words of `without_answer`.
NO_ANSWER: Mapping[str, str] = MappingProxyType(
    {
        "empty": "empty",
        "thought": "a thought alone",
        "cut": "cut off at a token limit",
        "refused": "refused or broken off",
    }
)
MORE_TOKENS = "raise limits.turn_tokens"
PARSED_AWAY = (
    "although the answer ended by itself: the server's reasoning parser took the whole answer for reasoning, so start "
    "the server with another --reasoning-parser or without one"
)
ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "malformed_call": "the model reads that its call is malformed, and may call again",
        "no_action": "see whether the model understands the prompt: agentrl view REPORT --failed",
        "context_limit": "serve the model with a longer context, or lower limits.turns or limits.turn_tokens",
        "time_limit": "raise limits.seconds, or lower endpoint.concurrency",
        "overlong_prompt": "raise engine.max_context, serve the model with a longer context, or leave the tasks out",
    }
)


class Example(NamedTuple):
    """A kind of failure in an episode: how often it occurred, and a text that shows it.

    `thoughts` counts the failed answers that came with reasoning, `cut` the failed answers that ended at a token limit,
    and `other` the failed answers that a limit of the endpoint or its server cut off (`Generation.cut_by`). `cut_by` is
    the sentence on the first such limit. `missing` names the part of the format that an answer lacked.
    """

    times: int
    thoughts: int = 0
    cut: int = 0
    text: str = ""
    missing: str = ""
    other: int = 0
    cut_by: str = ""


def kind_of_answer(step: StepRecord) -> str:
    """The kind of failure of a step's answer; empty if the answer did not fail."""
    answer = step.generation
    if answer.finish == "abort":
        return "refused"
    if answer.finish == "malformed":
        return "malformed_call"
    if not answer.text.strip():
        return "empty"
    if step.thought:
        return "thought"
    if answer.finish == "length":
        return "cut"
    if step.status == Status.PARSE_ERROR:
        if step.missing:
            return "no_format"
        return "refused" if refuses(answer.text) else "no_action"
    if not step.valid:
        return "bad_action"
    return "tool_error" if step.status == Status.TOOL_ERROR else ""


def refuses(text: str) -> bool:
    """Does a text begin with words of `REFUSALS`, perhaps after one of `APOLOGIES`?"""
    words = " ".join(text[:EXAMPLE_CHARS].replace("\N{RIGHT SINGLE QUOTATION MARK}", "'").lower().split())
    for apology in APOLOGIES:
        if words.startswith(apology):
            words = words.removeprefix(apology).lstrip(",.;!:- ").removeprefix("but ")
            break
    return words.startswith(REFUSALS)


def failures_of(record: EpisodeRecord) -> dict[str, Example]:
    """The kinds of failed answers of an episode."""
    found: dict[str, Example] = {}
    for step in record.steps:
        kind = kind_of_answer(step)
        if kind:
            before, answer = found.get(kind, Example(0)), step.generation
            found[kind] = Example(
                before.times + 1,
                before.thoughts + bool(answer.thought),
                before.cut + (answer.finish == "length"),
                before.text or _shown(kind, step),
                before.missing or step.missing,
                before.other + bool(answer.cut_by),
                before.cut_by or answer.cut_by,
            )
    return found


def first_words(record: EpisodeRecord) -> str:
    """The beginning of an episode's first answer that is not empty; empty if the episode has a tool call."""
    if any(step.calls for step in record.steps):
        return ""
    return next((words for step in record.steps if (words := _shown("", step))), "")


def _shown(kind: str, step: StepRecord) -> str:
    """The text that shows a failure: the reasoning of an empty answer, the refusal if there is one, else the answer.

    Of a malformed call, the refusal holds the server's words.
    """
    answer = step.generation
    refused = answer.refusal or answer.text
    text = {"empty": answer.thought, "refused": refused, "malformed_call": refused}.get(kind, answer.text)
    words = " ".join(text.split())
    if kind in ("cut", "thought"):  # show the end of the text, because the answer was cut off there
        return words if len(words) <= EXAMPLE_CHARS else "..." + words[-EXAMPLE_CHARS:]
    return words if len(words) <= EXAMPLE_CHARS else words[:EXAMPLE_CHARS] + "..."


def summary(outcomes: Sequence[Any], tool_calls: str = "") -> dict[str, dict[str, Any]]:
    """The kinds of failures of a report, by name: `answers.KIND` and `episodes.KIND`.

    Args:
        outcomes: the `Outcome`s of a report.
        tool_calls: how an endpoint gets tools and returns calls (native or text); empty without tools.

    Returns:
        Per kind: `count`, `of`, `share`, `example` (its `text`, `task` and `episode`, the position in the report) and
        `line`, a sentence.
    """
    answers, found = sum(o.steps for o in outcomes), {}
    for kind, words in ANSWERS.items():
        having = [(number, o) for number, o in enumerate(outcomes) if kind in o.failures]
        if having:
            counts = [Example(*o.failures[kind]) for _, o in having]
            number, first = having[0]
            total = Example(
                sum(one.times for one in counts),
                sum(one.thoughts for one in counts),
                sum(one.cut for one in counts),
                counts[0].text,
                counts[0].missing,
                sum(one.other for one in counts),
                next((one.cut_by for one in counts if one.cut_by), ""),
            )
            example = {"text": total.text, "task": first.task, "episode": number}
            found[f"answers.{kind}"] = _entry(f"answers {words}", _advice(kind, total), total.times, answers, example)
    if tool_calls and answers and not any(o.calls for o in outcomes):
        other = {"native": "text", "text": "native"}[tool_calls]
        advice = f"if the model can call tools, try endpoint.tool_calls={other}"
        number, first = next(((n, o) for n, o in enumerate(outcomes) if o.said), (0, outcomes[0]))
        example = {"text": first.said, "task": first.task, "episode": number}
        found["answers.no_call"] = _entry("answers called no tool", advice, answers, answers, example)
    for kind, words in EPISODES.items():
        ended = [(number, o) for number, o in enumerate(outcomes) if o.ending == kind]
        if ended:
            number, first = ended[0]
            example = {"text": (first.reason or first.fault)[:EXAMPLE_CHARS], "task": first.task, "episode": number}
            line = f"episodes {words}"
            found[f"episodes.{kind}"] = _entry(line, ADVICE.get(kind, ""), len(ended), len(outcomes), example)
    return found


def without_answer(found: Mapping[str, Any], least: float = 1.0) -> str:
    """How many answers were empty, cut off or refused, in words; "" if their share is below `least`.

    Args:
        found: the entry `failures` of a report, see `summary`.
        least: a share of all answers.
    """
    kinds = {kind: found[f"answers.{kind}"] for kind in NO_ANSWER if f"answers.{kind}" in found}
    count, of = sum(one["count"] for one in kinds.values()), max((one["of"] for one in kinds.values()), default=0)
    if not of or count < least * of:
        return ""
    words = " or ".join(NO_ANSWER[kind] for kind in kinds)
    each = ", ".join(f"{one['count']} {NO_ANSWER[kind]}" for kind, one in kinds.items())
    return (
        f"{'all ' if count == of else f'{count} of '}{of} answers were {words}{f' ({each})' if len(kinds) > 1 else ''}"
    )


def _advice(kind: str, total: Example) -> str:
    """The advice on failed answers of a kind."""
    if kind == "no_format":
        lost = "; the server took the reasoning out of the text" if total.thoughts else ""
        return (
            f"the missing part is {total.missing}{lost}: the action was carried out, and the answer counts as invalid"
        )
    if kind == "cut":
        return _more_tokens(total)
    if kind == "thought":
        ended = f"the token limit was reached{_in(total.cut, total.times)}: {_more_tokens(total)}" if total.cut else ""
        alone = f"{total.times - total.cut} ended by themselves, not closed or with no word behind the thought"
        return "; ".join(part for part in (ended, alone if total.cut < total.times else "") if part)
    if kind != "empty":
        return ADVICE.get(kind, "")
    if total.thoughts:
        had = f"reasoning_content had text{_in(total.thoughts, total.times)}"
        if not total.cut:
            return f"{had}, {PARSED_AWAY}"
        ended = (
            ""
            if total.cut == total.times
            else f"; {total.times - total.cut} ended by themselves, see --reasoning-parser of the server"
        )
        return f"{had} and the token limit was reached{_in(total.cut, total.times)}: {_more_tokens(total)}{ended}"
    return f"the token limit was reached{_in(total.cut, total.times)}: {_more_tokens(total)}" if total.cut else ""


def _more_tokens(total: Example) -> str:
    """The advice on answers that ended at a token limit."""
    if not total.other:
        return MORE_TOKENS
    return total.cut_by if total.other == total.cut else f"{MORE_TOKENS}; in {total.other} {total.cut_by}"


def _in(some: int, count: int) -> str:
    return "" if some == count else f" in {some}"


def _entry(words: str, advice: str, count: int, of: int, example: Mapping[str, Any]) -> dict[str, Any]:
    line = f"{count} of {of} {words}"
    line += f"; {advice}" if advice else ""
    shown = f"; such as {example['text']!r}" if example["text"] else ""
    return {"count": count, "of": of, "share": count / max(1, of), "example": dict(example), "line": line + shown}
