"""The scores of an answer: exact match, substring match, F1, and exact match with a share for the format.

Source: Search-R1 (arXiv:2503.09516) and its released scorers; normalisation is SQuAD's (arXiv:1606.05250).
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence

from agentrl.chat import tagged

_TAG = re.compile(r"(</?(?:think|search|information|answer)>)")
_PUNCTUATION = str.maketrans("", "", string.punctuation)

# state -> tag -> next state; outside think, search, information and answer only blanks may stand
_FORMAT = {
    "start": {"<think>": "thinking"},
    "thinking": {"</think>": "thought"},
    "thought": {"<search>": "searching", "<answer>": "answering"},
    "searching": {"</search>": "searched"},
    "searched": {"<information>": "reading"},
    "reading": {"</information>": "start"},
    "answering": {"</answer>": "end"},
    "end": {},
}
_INSIDE = ("thinking", "searching", "reading", "answering")


def normalise(text: str) -> str:
    """Lower case, without ASCII punctuation, without the words a, an, the, blanks collapsed; in that order.

    Departure from the released scorers: the text is first put into Unicode's form NFC, so that an accent written as a
    character of its own makes no difference.
    """
    words = unicodedata.normalize("NFC", text).lower().translate(_PUNCTUATION)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", words).split())


def normal(text: str) -> str:
    """The normalised text. If nothing is left of it ("The The", "!!!"), the text itself in lower case.

    The released scorers then compare the empty text: every answer contains it, and an answer of blanks equals it.
    """
    return normalise(text) or " ".join(text.lower().split())


def exact(answer: str, golden: Sequence[str]) -> float:
    """1 if the normalised answer equals a normalised golden one."""
    return float(bool(answer.strip()) and normal(answer) in {normal(one) for one in golden})


def contains(answer: str, golden: Sequence[str]) -> float:
    """1 if a normalised golden answer is part of the normalised answer."""
    return float(any(_within(one, answer, normalise(answer)) for one in golden))


def _within(one: str, text: str, normalised: str) -> bool:
    """Is a golden answer part of a text? `normalised` is the text's normalised form."""
    wanted = normalise(one)
    return wanted in normalised if wanted else bool(one.strip()) and normal(one) in " ".join(text.lower().split())


def f1(answer: str, golden: Sequence[str]) -> float:
    """Harmonic mean of precision and recall of the words; the largest over the golden answers."""
    return max((_f1(normalise(answer).split(), normalise(one).split()) for one in golden), default=0.0)


def _f1(given: list[str], right: list[str]) -> float:
    common = (Counter(given) & Counter(right)).total()
    return 2 * common / (len(given) + len(right)) if common else 0.0


def last_answer(text: str, prompt_blocks: int = 0) -> str | None:
    """The content of the last answer block of a text, or None.

    The released scorer reads prompt and response together, and the prompt holds one example block. With
    `prompt_blocks = 1` a text therefore needs a second block. A response without its prompt is read with 0. With the
    wrong number, the example answer is scored, or the only answer is not.
    """
    blocks = list(tagged(text, "answer"))
    return blocks[-1].content.strip() if len(blocks) > prompt_blocks else None


def well_formed(response: str) -> bool:
    """Is the response think, search, information, think, ..., think, answer, with only blanks between these blocks?"""
    state = "start"
    for i, part in enumerate(_TAG.split(response)):
        if i % 2:
            following = _FORMAT[state].get(part)
            if following is None:
                return False
            state = following
        elif part.strip() and state not in _INSIDE:
            return False
    return state == "end"


def retrieved(response: str, golden: Sequence[str]) -> bool:
    """Does an information block contain a golden answer?"""
    return any(contains(block.content, golden) for block in tagged(response, "information"))


def em_format(
    response: str, golden: Sequence[str], *, structure: float = 0.2, final: float = 0.1, retrieval: float = 0.1
) -> float:
    """Exact match with the format's share, as in Search-R1 v0.3.

    A right answer in a well formed response scores 1, in another response 1 - structure. A wrong answer in a well
    formed response scores structure, plus retrieval if an information block contains a golden answer; in another
    response it scores final. A response without an answer scores 0.
    """
    answer = last_answer(response)
    if answer is None:
        return 0.0
    formed = well_formed(response)
    if exact(answer, golden):
        return 1.0 if formed else 1.0 - structure
    if not formed:
        return final
    return structure + (retrieval if retrieved(response, golden) else 0.0)
