"""Players that need no model: demonstrators to clone, baselines to compare with.

expert: knows the goal; searches, opens, picks options and buys for a full score.
careless:0.5,0.5: the imperfect demonstrator. It takes the expert's action if this action is listed. With the first
    probability it takes a random listed query or product instead. With the second probability, at each step on an item
    page, it buys the product with the options selected so far. All its actions have weight 1 in cloning.
rule: the paper's rule baseline. random: takes each listed action with the same probability.

The numbers may be left out; the numbers above are the defaults. For the same seed and task a player plays the same
episode.
"""

import random
from collections.abc import Sequence

from agentrl.env import Env, Expert, Move
from agentrl.envs.webshop.brief import SHOWN
from agentrl.envs.webshop.environment import FULL_SCORE, WebShop
from agentrl.envs.webshop.pages import INDEX, ITEM, RESULTS
from agentrl.envs.webshop.products import Product
from agentrl.envs.webshop.session import Session
from agentrl.envs.webshop.words import suggested_queries
from agentrl.types import Observation, Task

EXPERTS = ("expert", "careless", "rule", "random")
CARELESS = (0.5, 0.5)  # default probabilities: a random query or product; buying too early


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
    base, _, numbers = name.partition(":")
    if base == "careless":
        return Careless(env, seed, *probabilities(name, numbers))
    raise ValueError(f"unknown expert {name!r}: known are {', '.join(EXPERTS)}")


def probabilities(name: str, numbers: str) -> tuple[float, float]:
    """The two numbers of a careless player's name; ValueError if they are not two probabilities."""
    try:
        found = tuple(float(number) for number in numbers.split(",")) if numbers else CARELESS
    except ValueError:
        found = ()
    if len(found) != 2 or not all(0 <= number <= 1 for number in found):
        raise ValueError(f"{name!r} is not a player: write careless:0.5,0.5, with 2 probabilities in [0, 1]")
    return found[0], found[1]


class Knowing:
    """Searches with the instruction's words, opens the first product that can reach a full score, picks options, buys.

    It looks at scores that a shopper does not see. If no product of the page reaches a full score, it opens the product
    for which the goal was written, and searches for that product's title if it is not on the page.
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
        """Open the first product of the page with a full score, else the goal's own; else search or turn the page."""
        brief = self._env.config.observation == "brief"
        numbers = session.market.shop.listed(session.state)[: SHOWN if brief else None]
        good = next((n for n in numbers if best_score(session, n) == FULL_SCORE), None)
        if good is None and session.goal.product in numbers:
            good = session.goal.product
        if good is None:
            return "click[back to search]" if self._searched < 2 else "click[next >]"
        return link(self._env, good)

    def _configure(self, session: Session) -> str:
        product = session.market.shop.product(session.state.product)
        for group, value in best_options(session, product).items():
            if session.state.options.get(group) != value and reachable(session, value, group):
                return f"click[{value}]"
        return "click[buy now]"


class Careless:
    """The expert with slips, restricted to the listed actions.

    If the expert's action is not listed, it takes the first listed product, or the first listed action.

    Args:
        env: the shop it plays in.
        seed: the seed of its slips.
        any_one: probability of a random listed query or product in place of the right one.
        early: probability, at each step on an item page, of buying what is selected so far.
    """

    def __init__(self, env: WebShop, seed: int, any_one: float, early: float) -> None:
        self._env, self._seed, self._any_one, self._early = env, seed, any_one, early
        self._expert, self._rng = Knowing(env), random.Random(seed)

    def reset(self, task: Task) -> None:
        """Forget the last episode, start this task's stream."""
        self._expert.reset(task)
        self._rng = random.Random(f"{self._seed}/{task.key}")

    def act(self, observation: Observation) -> Move:
        """A slip, or the expert's action if it is listed, or the first of its kind."""
        session = self._env.session
        if session.state.kind == ITEM and self._rng.random() < self._early:
            return Move("click[buy now]")
        choices = self._choices(observation)
        if session.state.kind in (INDEX, RESULTS) and self._rng.random() < self._any_one:
            return Move(self._rng.choice(choices))
        move = self._expert.act(observation)
        return move if move.action in (observation.actions or (move.action,)) else Move(choices[0])

    def _choices(self, observation: Observation) -> Sequence[str]:
        """The products of a page of results, else what is listed, else a search with the instruction's words."""
        session = self._env.session
        if session.state.kind == RESULTS:
            shown = [link(self._env, number) for number in session.market.shop.listed(session.state)]
            return [action for action in shown if action in observation.actions] or observation.actions
        return observation.actions or (f"search[{suggested_queries(session.goal.instruction, 1)[0]}]",)


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
            return Move(link(self._env, numbers[0]))
        return Move("click[buy now]" if session.state.kind == ITEM else "click[< prev]")


class Chance:
    """Takes each listed action with the same probability."""

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


def link(env: WebShop, number: int) -> str:
    """The action that opens a product of the page of results."""
    session = env.session
    if env.config.observation == "brief":
        return f"click[item {session.market.shop.listed(session.state).index(number) + 1}]"
    return f"click[{session.market.shop.row(number).clickable}]"


def reachable(session: Session, value: str, group: str) -> bool:
    """Would a click on this value select it in this group? Not if a button, or another group, has the same name."""
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
