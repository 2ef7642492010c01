"""The session of one shopper: a goal, a page of the shop, and a random generator."""

import random
import string
from collections.abc import Mapping
from typing import Any, NamedTuple

from agentrl.envs.webshop.market import Market
from agentrl.envs.webshop.pages import INDEX, Outcome, State
from agentrl.envs.webshop.products import Product
from agentrl.envs.webshop.render import FORMS
from agentrl.envs.webshop.search import Refused


class Mark(NamedTuple):
    """Everything in a session that changes; `rng` is None before anything was drawn."""

    state: State
    rng: tuple[Any, ...] | None
    error: str


class Session:
    """Plays one goal.

    Args:
        market: what the sessions of a configuration share.
        goal: an integer is the index of the goal after the shuffle, and also the session's id. A string is the
            session's id, and the goal is drawn by weight. None draws an id and a goal.
        seed: the seed of the session's random generator.
        form: the form of the observations.
    """

    def __init__(self, market: Market, goal: int | str | None, seed: int, form: str) -> None:
        self._seed, self._rng = seed, None if isinstance(goal, int) else random.Random(seed)
        self.id = "".join(self.rng().choices(string.ascii_lowercase, k=10)) if goal is None else str(goal)
        self.number = goal if isinstance(goal, int) else market.goals.draw(self.rng())
        self.market, self._form = market, FORMS[form]
        self.goal, self._scorer = market.goal(self.number)
        self.state = State()
        self.error = ""

    def rng(self) -> random.Random:
        """The session's random generator, seeded when it is first needed: seeding costs more than a reset."""
        if self._rng is None:
            self._rng = random.Random(self._seed)
        return self._rng

    def observe(self, form: str = "") -> str:
        """The page in the session's form, or in another form."""
        write = FORMS[form] if form else self._form
        return write(self.market.shop, self.state, self.goal.instruction, self.id)

    def clickables(self) -> tuple[str, ...]:
        """What can be clicked."""
        return self.market.shop.clickables(self.state)

    @property
    def has_search_bar(self) -> bool:
        """Is this the page with the search bar? (Searching works everywhere.)"""
        return self.state.kind == INDEX

    def step(self, action: str) -> Outcome:
        """Carry out one action. If it is refused, `error` says why, and the page stays."""
        self.error = ""
        try:
            outcome = self.market.shop.step(self.state, action, self.id, self.rng, self._scorer)
        except Refused as refusal:
            self.error = str(refusal)
            return Outcome(self.state, accepted=False)
        self.state = outcome.state
        return outcome

    def score(self, product: Product, options: Mapping[str, str]) -> float:
        """The score of buying a product with these options; for demonstrators and audits."""
        return self._scorer(product, options)[0]

    def mark(self) -> Mark:
        """The present state, for `back_to`."""
        return Mark(self.state, self._rng.getstate() if self._rng else None, self.error)

    def back_to(self, mark: Mark) -> None:
        """Go back to a mark of a session of the same goal."""
        self.state, self.error = mark.state, mark.error
        self._rng = None
        if mark.rng is not None:
            self.rng().setstate(mark.rng)
