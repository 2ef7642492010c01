"""Players that need no model: an expert that knows the goal, the paper's rule, and chance."""

import random

from agentrl.env import Env, Expert, Move
from agentrl.envs.webshop.brief import SHOWN
from agentrl.envs.webshop.environment import FULL_SCORE, WebShop
from agentrl.envs.webshop.pages import INDEX, ITEM, RESULTS
from agentrl.envs.webshop.products import Product
from agentrl.envs.webshop.session import Session
from agentrl.envs.webshop.words import suggested_queries
from agentrl.types import Observation, Task

EXPERTS = ("expert", "rule", "random")


def expert(env: Env, name: str, seed: int) -> Expert:
    """A player of this instance by name; ValueError for an unknown one."""
    if not isinstance(env, WebShop):
        raise ValueError(f"the experts of webshop play webshop, not {type(env).__name__}")
    if name == "expert":
        return Knowing(env)
    if name == "rule":
        return Rule(env)
    if name == "random":
        return Chance(env, seed)
    raise ValueError(f"unknown expert {name!r}: known are {', '.join(EXPERTS)}")


class Knowing:
    """Searches with the instruction's words, opens the first product that can reach a full score, picks options, buys.

    It looks at scores that a shopper does not see. Where no listed product reaches a full score it opens the goal's
    own, found by its title if need be.
    """

    def __init__(self, env: WebShop) -> None:
        self._env, self._searched = env, 0

    def reset(self, task: Task) -> None:
        """Forget the last episode."""
        self._searched = 0

    def act(self, observation: Observation) -> Move:
        """The next step of the plan."""
        session = self._env.session
        if session.state.kind == INDEX:
            return Move(self._search(session))
        if session.state.kind == RESULTS:
            return Move(self._choose(session))
        if session.state.kind == ITEM:
            return Move(self._configure(session))
        return Move("click[< prev]")

    def _search(self, session: Session) -> str:
        self._searched += 1
        own = session.market.catalogue.products[session.goal.product].title
        words = suggested_queries(session.goal.instruction, 1)
        return f"search[{words[0] if words and self._searched == 1 else own}]"

    def _choose(self, session: Session) -> str:
        """The first product on the page worth a full score; else the goal's own; else search by its title."""
        brief = self._env.config.observation == "brief"
        numbers = session.market.shop.listed(session.state)[: SHOWN if brief else None]
        good = next((n for n in numbers if best_score(session, n) == FULL_SCORE), None)
        if good is None and session.goal.product in numbers:
            good = session.goal.product
        if good is None:
            return "click[back to search]" if self._searched < 2 else "click[next >]"
        place = numbers.index(good) + 1
        return f"click[item {place}]" if brief else f"click[{session.market.shop.row(good).clickable}]"

    def _configure(self, session: Session) -> str:
        product = session.market.shop.product(session.state.product)
        for group, value in best_options(session, product).items():
            if session.state.options.get(group) != value and reachable(session, value, group):
                return f"click[{value}]"
        return "click[buy now]"


class Rule:
    """The paper's rule baseline: search with the instruction, open the first result, buy it."""

    def __init__(self, env: WebShop) -> None:
        self._env = env

    def reset(self, task: Task) -> None:
        """Nothing to forget."""

    def act(self, observation: Observation) -> Move:
        """The rule for the page."""
        session = self._env.session
        if session.state.kind == INDEX:
            return Move(f"search[{session.goal.instruction}]")
        if session.state.kind == RESULTS:
            numbers = session.market.shop.listed(session.state)
            if not numbers:
                return Move("click[back to search]")
            brief = self._env.config.observation == "brief"
            return Move("click[item 1]" if brief else f"click[{session.market.shop.row(numbers[0]).clickable}]")
        return Move("click[buy now]" if session.state.kind == ITEM else "click[< prev]")


class Chance:
    """A listed action, uniformly."""

    def __init__(self, env: WebShop, seed: int) -> None:
        self._env, self._seed = env, seed
        self._rng = random.Random(seed)

    def reset(self, task: Task) -> None:
        """Start the same sequence again."""
        self._rng = random.Random(self._seed)

    def act(self, observation: Observation) -> Move:
        """One of the listed actions; a search with the instruction where none is listed."""
        choices = observation.actions or (f"search[{self._env.session.goal.instruction}]",)
        return Move(self._rng.choice(choices))


def reachable(session: Session, value: str, group: str) -> bool:
    """Would a click on this value select it in this group? Values named like buttons, or of two groups, may not."""
    view = session.market.shop.item(session.state.product)
    buttons = set(view.clickables[: len(view.clickables) - len(view.group_of)]) | {"search"}
    return view.group_of.get(value) == group and value not in buttons


def best_options(session: Session, product: Product) -> dict[str, str]:
    """For each group the value the goal asks for, where the product has one."""
    asked = session.goal.options
    wanted = set(asked.values() if isinstance(asked, dict) else asked)
    exact = {group: next((v for v in values if v in wanted), None) for group, values in product.options.items()}
    return {group: value for group, value in exact.items() if value is not None}


def best_score(session: Session, number: int) -> float:
    """What buying a product with the goal's options would score."""
    product = session.market.catalogue.products[number]
    return session.score(product, best_options(session, product))
