"""The prompts of the search environment: the published words, and short forms for language models and small models.

An action is `<search>query</search>` or `<answer>words</answer>`, with its tags.
"""

from collections.abc import Sequence

from agentrl.chat import first_tagged, without_thoughts
from agentrl.env import Parsed, PastTurn, Prompt, action_line, spoken
from agentrl.envs.search_qa.config import Config
from agentrl.types import Observation, Status

# Search-R1's own sentences (github.com/PeterGriffinJin/Search-R1, Apache-2.0), with their mistakes in English, because
# released models were trained on them. A row of a data set that has a prompt of its own keeps that prompt.
QUESTION = (
    "Answer the given question. "
    "You must conduct reasoning inside <think> and </think> first every time you get new information. "
    "After reasoning, if you find you lack some knowledge, you can call a search engine by <search> query </search> "
    "and it will return the top searched results between <information> and </information>. "
    "You can search as many times as your want. "
    "If you find no further external knowledge needed, you can directly provide the answer inside <answer> and "
    "</answer>, without detailed illustrations. For example, <answer> Beijing </answer>. Question: {question}\n"
)
TAGS = ("search", "answer")
INVALID = (
    "\nMy previous action is invalid. If I want to search, I should put the query between <search> and </search>. "
    "If I want to give the final answer, I should put the answer between <answer> and </answer>. Let me try again.\n"
)
INFORMATION = "\n\n<information>{results}</information>\n\n"


def read(text: str) -> tuple[str, str] | None:
    """The first search or answer behind the thoughts of a text, its content stripped; None if there is none."""
    found = first_tagged(without_thoughts(text), TAGS)
    return None if found is None else (found.tag, found.content.strip())


def carried_out(text: str) -> str:
    """A text up to the end of its first search or answer; all of it if there is none."""
    words = without_thoughts(text)
    found = first_tagged(words, TAGS)
    return text if found is None else text[: len(text) - len(words) + found.end]


def choose(config: Config) -> Prompt:
    """The prompt a configuration names."""
    short = {"compact": Compact, "instruct": Instruct}
    return short[config.prompt]() if config.prompt in short else SearchR1(whole=config.whole)


class SearchR1:
    """One assistant message: thoughts, searches, their results, and the answer at its end.

    Args:
        whole: True: the action is the whole text with its thoughts, for rewards that read the thoughts. False: it is
            only the search or the answer, so that texts with different thoughts and the same search are one action.
    """

    system = ""
    continues = True
    stop = ("</search>", "</answer>")

    def __init__(self, whole: bool = False) -> None:
        self.whole = whole

    def first(self, observation: Observation) -> str:
        """The row's own prompt, or else the published sentences with the question."""
        if observation.text != observation.task:
            return observation.text
        return QUESTION.format(question=observation.task)

    def turn(self, observation: Observation) -> str:
        """The results, without further words."""
        return observation.text

    def window(self, first: Observation, past: Sequence[PastTurn], done: int, observation: Observation) -> str:
        """The question, the last turns in their order, and the newest results."""
        told = [self.first(first)]
        for i, step in enumerate(past, done - len(past)):
            told += [step.observation.text if i else "", step.action]
        return "".join(told) + (observation.text if done else "")

    def answer(self, action: str) -> str:
        """The action itself."""
        return action

    def parse(self, text: str, observation: Observation) -> Parsed:
        """Valid if the text has a search or an answer; the first search or answer is the action."""
        found = read(text)
        if found is None:
            return Parsed(text, False, Status.PARSE_ERROR)
        name, content = found
        return Parsed(text if self.whole else f"<{name}>{content}</{name}>", True, Status.OK)


class Compact:
    """The bare question and results; an answer is `search NAME` or `answer NAME`."""

    system = ""

    def first(self, observation: Observation) -> str:
        """The question."""
        return observation.task

    def turn(self, observation: Observation) -> str:
        """The results."""
        return observation.text

    def window(self, first: Observation, past: Sequence[PastTurn], done: int, observation: Observation) -> str:
        """Question, the last actions, the results."""
        lines = [first.task, *(f"> {self.answer(step.action)}" for step in past)]
        return "\n".join([*lines, observation.text] if done else lines)

    def answer(self, action: str) -> str:
        """The action without tags."""
        found = read(action)
        return action if found is None else f"{found[0]} {found[1]}"

    def parse(self, text: str, observation: Observation) -> Parsed:
        """Valid if the first word is `search` or `answer`; the rest is the query or the answer."""
        text = spoken(text)
        name, _, content = text.partition(" ")
        if name not in ("search", "answer"):
            return Parsed(text, False, Status.PARSE_ERROR)
        return Parsed(f"<{name}>{content.strip()}</{name}>", True, Status.OK)


class Instruct(Compact):
    """For language models, in few words: as `Compact`, and a system message with role and format."""

    system = (
        "You answer a question by looking things up. Reply with one line only: `search NAME` to read about a person, "
        "place or thing, or `answer NAME` when you know the answer."
    )

    def first(self, observation: Observation) -> str:
        """The question."""
        return f"Question: {observation.task}"

    def parse(self, text: str, observation: Observation) -> Parsed:
        """As `Compact.parse`, of the first line; the first word may have capitals and a colon."""
        line = action_line(text)
        name, _, content = line.partition(" ")
        return super().parse(f"{name.lower().removesuffix(':')} {content}", observation)
