"""A tool environment in one file: find the ingredients of a dish on three shelves, then cook it.

cd examples
agentrl check pantry
agentrl play pantry
agentrl eval pantry --policy random
"""

import random

from agentrl.tool_env import environment

DISHES = {"omelette": ("egg", "butter"), "salad": ("tomato", "oil"), "soup": ("tomato", "onion")}
GOODS = ("butter", "egg", "oil", "onion", "tomato")


class Pantry:
    """Public typed methods are the tools; methods that begin with an underscore are none."""

    def reset(self, dish: str, order: int) -> str:
        goods = random.Random(order).sample(GOODS, len(GOODS))
        self.shelves = {"top": goods[:2], "middle": goods[2:4], "bottom": goods[4:]}
        self.dish, self.bowl, self.seen, self.cooked = dish, [], set(), ""
        return f"Cook a {dish}: it takes {' and '.join(DISHES[dish])}."

    def look(self, shelf: str) -> str:
        """What lies on a shelf: top, middle or bottom."""
        self.seen.add(shelf)
        return ", ".join(self.shelves[shelf]) or "nothing"

    def take(self, good: str, shelf: str) -> str:
        """Put something from a shelf into the bowl."""
        if good not in self.shelves[shelf]:
            raise ValueError(f"no {good} on the {shelf} shelf")  # an error is an answer: the model reads it
        self.shelves[shelf].remove(good)
        self.bowl.append(good)
        return f"in the bowl: {', '.join(self.bowl)}"

    def reward(self, answer: str) -> float:
        """The episode ends with a final answer: the name of the dish, which must be in the bowl, and nothing else."""
        return float(answer == self.dish and sorted(self.bowl) == sorted(DISHES[self.dish]))

    def _actions(self) -> list[str]:
        looks = [f"look({shelf!r})" for shelf in self.shelves]
        takes = [f"take({good!r}, {shelf!r})" for shelf in sorted(self.seen) for good in self.shelves[shelf]]
        return [*looks, *takes, *DISHES]

    def _expert(self) -> str:
        missing = [good for good in DISHES[self.dish] if good not in self.bowl]
        for shelf in sorted(self.seen):
            for good in missing:
                if good in self.shelves[shelf]:
                    return f"take({good!r}, {shelf!r})"
        unseen = [shelf for shelf in self.shelves if shelf not in self.seen]
        return f"look({unseen[0]!r})" if missing else self.dish


ROWS = [{"dish": dish, "order": order} for dish in DISHES for order in range(20)]
Config, make, tasks, prompt = environment(Pantry, rows=ROWS)
