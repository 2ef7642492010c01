"""The prompts of Sokoban: the form of published text agents, and short forms."""

from collections.abc import Sequence

from agentrl.chat import without_thoughts
from agentrl.env import Bare, Parsed, PastTurn, action_line, missing_thought_tags, spoken
from agentrl.envs.sokoban.rules import ACTIONS, LEGEND, MOVES
from agentrl.types import Observation, Status

_ROLE = "You are an expert agent operating in the Sokoban environment. Push every box onto a target."
_RULES = (
    "You can push one box at a time and never pull; walls and other boxes block it. "
    f"Each symbol of the grid is one cell: {LEGEND}."
)


class VerlAgent:
    """The prompt of verl-agent's text Sokoban: the same parts (legend, grid, format) in other words.

    As in verl-agent's code, the action is read inside the first <action> pair: it is the first of the words up, down,
    left, right, still, in this order, that occurs there. An answer without thinking tags is played and counts as
    invalid. With several moves per turn, all moves between commas count.

    Args:
        moves_per_turn: largest number of moves of an answer; further moves are ignored.
    """

    system = ""

    def __init__(self, moves_per_turn: int = 1) -> None:
        self.moves_per_turn = moves_per_turn
        most = f"one to {moves_per_turn} moves, separated by commas" if moves_per_turn > 1 else "one move"
        self._format = (
            f"Now it is your turn to give {most} of {', '.join(MOVES)}.\n"
            "First reason step by step about the current situation, within <think> </think> tags. "
            "Then give your choice within <action> </action> tags."
        )

    def first(self, observation: Observation) -> str:
        """Role, rules, grid, format."""
        return f"{_ROLE}\n{_RULES}\nThe current grid is:\n{observation.text}\n\n{self._format}"

    def turn(self, observation: Observation) -> str:
        """Grid, format."""
        return f"The current grid is:\n{observation.text}\n\n{self._format}"

    def window(self, first: Observation, past: Sequence[PastTurn], done: int, observation: Observation) -> str:
        """Role and rules, the last turns (each grid before its action), the current grid."""
        if not done:
            return self.first(observation)
        start = done - len(past) + 1
        lines = [
            f"[Observation {start + i}:\n{turn.observation.text}\nAction {start + i}: '{turn.action}']"
            for i, turn in enumerate(past)
        ]
        head = [f"{_ROLE}\n{_RULES}\nYou have already taken {done} step(s)."]
        if past:
            head += [f"Your last {len(past)} observations and actions:", *lines]
        return "\n".join([*head, self.turn(observation)])

    def answer(self, action: str) -> str:
        """The action in the format that the prompt asks for, with an empty thought."""
        return f"<think></think><action>{action}</action>"

    def parse(self, text: str, observation: Observation) -> Parsed:
        """Read the answer as the docstring of the class says."""
        lowered = without_thoughts(text).lower()
        begin, end = lowered.find("<action>"), lowered.find("</action>")
        inside = lowered[begin + len("<action>") : end] if 0 <= begin < end else ""
        moves = self._moves(inside)
        missing = missing_thought_tags(text.lower())
        if not moves:
            return Parsed(inside.strip()[-30:], False, Status.PARSE_ERROR)
        return Parsed(",".join(moves), not missing, Status.PARSE_ERROR if missing else Status.OK, missing=missing)

    def _moves(self, inside: str) -> list[str]:
        if self.moves_per_turn == 1:
            return [word for word in ACTIONS if word in inside][:1]
        words = inside.replace("||", ",").replace("\n", ",").split(",")
        return [word for word in map(str.strip, words) if word in ACTIONS][: self.moves_per_turn]


class Compact(Bare):
    """The bare grid, and the bare move as answer."""

    def window(self, first: Observation, past: Sequence[PastTurn], done: int, observation: Observation) -> str:
        """The last moves on one line, then the grid."""
        return "\n".join([*([" ".join(turn.action for turn in past)] if past else []), observation.text])

    def parse(self, text: str, observation: Observation) -> Parsed:
        """Valid if it is a move, or several with commas between them."""
        words = [word.strip().lower() for word in spoken(text).split(",")]
        known = all(word in ACTIONS for word in words)
        return Parsed(",".join(words), known, Status.OK if known else Status.PARSE_ERROR)


class Instruct(Compact):
    """`Compact` for language models: a system message with rules, symbols and format.

    Args:
        moves_per_turn: largest number of moves that the system message asks for.
    """

    def __init__(self, moves_per_turn: int = 1) -> None:
        most = "one move" if moves_per_turn == 1 else f"one to {moves_per_turn} moves, separated by commas,"
        self.system = (
            f"You play Sokoban: push every box onto a target. {_RULES} Reply with {most} of {', '.join(MOVES)} only."
        )

    def parse(self, text: str, observation: Observation) -> Parsed:
        """The first line."""
        return super().parse(action_line(text), observation)
