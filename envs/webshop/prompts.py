"""The prompts of WebShop: the plain form, a compact form for small models, and the published forms.

Sources: verl-agent (arXiv:2505.10978) for `verl_agent`, axon-rl/gem for `gem`. Structure and parsing rules are those of
the sources; the sentences are agentrl's own.
"""

import re
from collections.abc import Sequence

from agentrl.chat import without_thoughts
from agentrl.env import Parsed, PastTurn, Plain, Prompt, action_line, missing_thought_tags, spoken
from agentrl.envs.webshop.config import Config
from agentrl.envs.webshop.views import SEPARATOR
from agentrl.types import Observation, Status

LONGEST_WITH_HISTORY = 13_000  # characters; beyond it verl-agent drops the history
LAST_CHARACTERS = 20  # the characters at the end of a reply without action tags that are taken as its action
_CJK = re.compile("[\u4e00-\u9fff]")
_BOXED = re.compile(r"\\boxed\{(.*?)\}", re.S)


def choose(config: Config) -> Prompt:
    """The prompt a configuration names."""
    prompts: dict[str, Prompt] = {
        "plain": ShopPlain(),
        "compact": Compact(),
        "instruct": Instruct(),
        "instruct_listed": Instruct(lists=True),
        "verl_agent": VerlAgent(),
        "gem": Gem(),
    }
    return prompts[config.prompt]


class ShopPlain(Plain):
    """Page and listed actions; the task comes before them only if the page does not show it."""

    system = ""

    def first(self, observation: Observation) -> str:
        """The page and its actions, after the task if the page does not show it."""
        shown = observation.task in observation.text
        return self.turn(observation) if shown else f"{observation.task}\n{self.turn(observation)}"

    def turn(self, observation: Observation) -> str:
        """Page, then one action per line."""
        searches = [] if any(a.startswith("search[") for a in observation.actions) else ["search[your words]"]
        return f"{observation.text}\nActions:\n" + "\n".join([*searches, *observation.actions])


class Compact(Plain):
    """Task and page without the list of actions, for small models whose answers are restricted to the list.

    An action is written `click silver`: a word-level tokenizer then reads the value as the same token as on the page,
    where a blank precedes it too.
    """

    system = ""

    def first(self, observation: Observation) -> str:
        """Task, then the page."""
        return f"{observation.task}\n{observation.text}"

    def turn(self, observation: Observation) -> str:
        """The page."""
        return observation.text

    def window(self, first: Observation, past: Sequence[PastTurn], done: int, observation: Observation) -> str:
        """Task, the last actions, the page."""
        lines = [first.task, *(f"> {self.answer(p.action)}" for p in past), observation.text]
        return "\n".join(lines)

    def answer(self, action: str) -> str:
        """The action without its brackets."""
        name, found, rest = action.partition("[")
        return f"{name} {rest[:-1]}" if found and rest.endswith("]") else action

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The first word is the action's name, the rest its argument; brackets are understood as well."""
        written = spoken(text)
        name, found, rest = written.partition(" ")
        if found and "[" not in name:
            written = f"{name}[{rest}]"
        return super().parse(written, observation)


class Instruct(Plain):
    """For language models, in few words: a system message with role, format and actions; then task and page.

    Args:
        lists: list the admissible actions in every message.
    """

    system = (
        "You buy a product in a web shop. Reply with one action only: search[words] on the search page, or click[name] "
        "on a page, where name is a product, an option or a button. Choose each option that the task names, then "
        "click[buy now]."
    )

    def __init__(self, lists: bool = False) -> None:
        self.lists = lists

    def first(self, observation: Observation) -> str:
        """Task, page, and the actions if they are listed; without the task if the page shows it."""
        told = "" if observation.task in observation.text else f"Task: {observation.task}\n"
        return told + self.turn(observation)

    def turn(self, observation: Observation) -> str:
        """The page, and the actions if they are listed."""
        listed = f"\nPossible actions: {', '.join(observation.actions)}" if self.lists else ""
        return f"{observation.text}{listed}"

    def window(self, first: Observation, past: Sequence[PastTurn], done: int, observation: Observation) -> str:
        """Task, the last actions, the page."""
        return "\n".join([f"Task: {first.task}", *(f"> {p.action}" for p in past), self.turn(observation)])

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The first line; valid unless empty."""
        return super().parse(action_line(text), observation)


class VerlAgent:
    """verl-agent's prompt and action projection: one user message per step, `<think>` and `<action>` tags."""

    system = ""
    _FORMAT = (
        "Reason about the situation step by step inside <think> </think> tags. Then choose one admissible action for "
        "this step and give it inside <action> </action> tags."
    )

    def first(self, observation: Observation) -> str:
        """The prompt without history."""
        return self._write(observation, observation, (), 0)

    def turn(self, observation: Observation) -> str:
        """Page and actions, for contexts that keep the whole chat."""
        return f"{self._page(observation)}\nYour admissible actions are:\n{self._actions(observation)}\n{self._FORMAT}"

    def window(self, first: Observation, past: Sequence[PastTurn], done: int, observation: Observation) -> str:
        """The prompt with history; without history if the prompt would be too long."""
        text = self._write(first, observation, past, done)
        return text if len(text) <= LONGEST_WITH_HISTORY else self._write(first, observation, (), 0)

    def _write(self, first: Observation, observation: Observation, past: Sequence[PastTurn], done: int) -> str:
        lines = [f"You are an expert shopping agent on the WebShop site. Your task is: {first.task}."]
        if done and past:
            start = done - len(past) + 1
            lines.append(f"You have taken {done} step(s). The last {len(past)} observations and actions were:")
            for i, step in enumerate(past, start):
                page = self._page(step.observation)
                lines.append(f"[Observation {i}: '{page}', Action {i}: '{step.action}']")
            lines.append(f"You are now at step {done + 1}. Your current observation is: {self._page(observation)}.")
        else:
            lines.append(f"Your current observation is: {self._page(observation)}.")
        lines += ["Your admissible actions are:", self._actions(observation), self._FORMAT]
        return "\n".join(lines)

    def _page(self, observation: Observation) -> str:
        """The parts of the page after the instruction, each in single quotes."""
        head, found, rest = observation.text.partition(f"{observation.task}{SEPARATOR}")
        return SEPARATOR.join(f"'{part}'" for part in (rest if found else head).split(SEPARATOR))

    def _actions(self, observation: Observation) -> str:
        clicks = [action for action in observation.actions if action.startswith("click[")]
        search = ["search[<your query>]"] if len(clicks) < len(observation.actions) or not clicks else []
        return "\n".join(f"'{action}'," for action in [*search, *clicks])

    def answer(self, action: str) -> str:
        """An action with its tags."""
        return f"<think></think><action>{action}</action>"

    def parse(self, text: str, observation: Observation) -> Parsed:
        """Read an answer as verl-agent does: valid if the format is right, even if the action is not admissible."""
        reply = without_thoughts(text).lower()
        start, end = reply.find("<action>"), reply.find("</action>")
        if start < 0 or end < 0:
            return Parsed(text.lower()[-LAST_CHARACTERS:], False, Status.PARSE_ERROR)
        action = reply[start + len("<action>") : end].strip()
        missing = missing_thought_tags(text) or ("text without Chinese characters" if _CJK.search(text) else "")
        return Parsed(action, not missing, Status.PARSE_ERROR if missing else Status.OK, missing=missing)


class Gem(ShopPlain):
    """gem's reply format: the last `\\boxed{...}` is the action, its case kept."""

    system = ""

    def turn(self, observation: Observation) -> str:
        """Page, actions, and the format."""
        return f"{super().turn(observation)}\nGive your action as \\boxed{{search[words]}} or \\boxed{{click[name]}}."

    def answer(self, action: str) -> str:
        """A boxed action."""
        return f"\\boxed{{{action}}}"

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The action is the content of the last box. No box, or an empty last box, is a parse error."""
        text = without_thoughts(text)
        # A box cannot end after the last brace. Without this cut, every box that is not closed searches the whole text.
        boxes = _BOXED.findall(text[: text.rfind("}") + 1])
        if not boxes or not boxes[-1].strip():
            return Parsed(text.strip(), False, Status.PARSE_ERROR)
        return Parsed(boxes[-1].strip(), True, Status.OK)
