"""A tool environment that pays for any text of odd length, so that copies of one task differ under random weights."""

from agentrl.tool_env import environment


class Lengths:
    def reset(self, word: str) -> str:
        return f"How many letters has {word}?"

    def count(self, word: str) -> int:
        """Count letters."""
        return len(word)

    def reward(self, answer: str) -> float:
        return float(len(answer) % 2)


ROWS = [{"word": chr(97 + first) + chr(97 + second)} for first in range(4) for second in range(5)]
Config, make, tasks, prompt = environment(Lengths, rows=ROWS)
