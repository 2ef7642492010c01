"""The page machine: the effect of each action on a session, with every quirk of the original.

A session's state is one immutable value; a step returns the next state. As in the original, substrings of the URL
decide on which kind of page an action acts, so a query such as `search_results` changes what `< prev` does.
"""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from agentrl.envs.webshop import views
from agentrl.envs.webshop.catalogue import Catalogue
from agentrl.envs.webshop.products import Product
from agentrl.envs.webshop.search import Refused, Search

BASE = "http://127.0.0.1:3000"
PER_PAGE = 10
INDEX, RESULTS, ITEM, SUB, DONE = "", "search_results", "item_page", "item_sub_page", "done"
KINDS = (RESULTS, ITEM, SUB, DONE)  # the order in which the URL is searched for them
_SUB_NAMES = MappingProxyType({name.lower(): name for name in views.SUB_PAGES})

Draws = Callable[[], random.Random]
Scorer = Callable[[Product, Mapping[str, str]], tuple[float, Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class State:
    """The state of a session.

    Attributes:
        kind: the page shown.
        keywords: words of the last search; None on the index page.
        page: number of the last results page.
        found: numbers of the products that the last search found.
        product: number of the last product opened, -1 for none.
        sub: name of the product's further page that is shown, such as Description; else empty.
        options: group -> clicked value, in the order of first clicks; never changed in place.
        visited: ASINs opened since the last index page.
        reward: the reward of the purchase, on the page `done`.
    """

    kind: str = INDEX
    keywords: tuple[str, ...] | None = None
    page: int = 0
    found: Sequence[int] | np.ndarray = ()
    product: int = -1
    sub: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    visited: frozenset[str] = frozenset()
    reward: float = 0.0


class Outcome(NamedTuple):
    """The result of an action. `accepted`: it was understood and allowed; `parts`: parts of a purchase's reward."""

    state: State
    reward: float = 0.0
    done: bool = False
    accepted: bool = True
    parts: Mapping[str, Any] = MappingProxyType({})


def parse(action: str) -> tuple[str, str]:
    """(name, lower-case argument); the argument is empty where the action does not have the form name[argument]."""
    line = action.partition("\n")[0]
    closing = line.rfind("]")
    opening = line.rfind("[", 1, max(closing - 1, 1))  # the last bracket with a name before it and an argument inside
    return (action, "") if opening < 0 else (line[:opening], line[opening + 1 : closing].lower())


class Shop:
    """Pages over one catalogue, shared by all sessions.

    Args:
        catalogue: the stock.
        search: the search bar.
        show_attributes: offer the page of attributes.
        cached: number of products whose written pages are cached.
    """

    def __init__(
        self, catalogue: Catalogue, search: Search, *, show_attributes: bool = False, cached: int = 4096
    ) -> None:
        self.catalogue, self.search = catalogue, search
        stock = catalogue.products
        self.product = stock.__getitem__
        self.row = lru_cache(cached)(lambda number: views.row_view(stock[number]))
        self.item = lru_cache(cached)(lambda number: views.item_view(stock[number], show_attributes=show_attributes))

    def url(self, state: State, session: str) -> str:
        """The address of a page."""
        if state.kind == INDEX:
            return f"{BASE}/{session}"
        words = "+".join(state.keywords or ())
        if state.kind == RESULTS:
            return f"{BASE}/{RESULTS}/{session}/{words}/{state.page}"
        asin = self.product(state.product).asin
        if state.kind == DONE:
            return f"{BASE}/{DONE}/{session}/{asin}/{dict(state.options)}"
        where = f"{session}/{asin}/{words}/{state.page}"
        if state.kind == SUB:
            return f"{BASE}/{SUB}/{where}/{state.sub}/{dict(state.options)}"
        return f"{BASE}/{ITEM}/{where}/{json.dumps(dict(state.options))}"

    def listed(self, state: State) -> list[int]:
        """Products on a results page."""
        found = state.found[(state.page - 1) * PER_PAGE : state.page * PER_PAGE]
        return found.tolist() if isinstance(found, np.ndarray) else list(found)

    def clickables(self, state: State) -> tuple[str, ...]:
        """What can be clicked, in the original's order; `search` is listed although it cannot be clicked."""
        if state.kind == INDEX:
            return ("search",)
        if state.kind == RESULTS:
            turn = ("back to search", "< prev", "next >") if state.page > 1 else ("back to search", "next >")
            return tuple(dict.fromkeys((*turn, *(self.row(number).clickable for number in self.listed(state)))))
        if state.kind == ITEM:
            return self.item(state.product).clickables
        return ("back to search", "< prev") if state.kind == SUB else ()

    def step(self, state: State, action: str, session: str, rng: Draws, scorer: Scorer) -> Outcome:
        """Carry out one action as written.

        Args:
            state: the session.
            action: name[argument].
            session: the session's id; part of the URL.
            rng: returns the random generator of random searches.
            scorer: scores a purchase.

        Raises:
            Refused: the original crashes on the action; the state is unchanged.
        """
        name, argument = parse(action)
        if name == "search" and argument:
            return Outcome(self._results(state, tuple(argument.split(" ")), 1, rng))
        if name == "click" and argument != "search" and argument in self.clickables(state):
            return self._click(state, argument, session, rng, scorer)
        return Outcome(state, accepted=False)

    def _results(self, state: State, keywords: tuple[str, ...], page: int, rng: Draws) -> State:
        found = self.search.find(keywords, rng)
        return State(kind=RESULTS, keywords=keywords, page=page, found=found, visited=state.visited)

    def _click(self, state: State, name: str, session: str, rng: Draws, scorer: Scorer) -> Outcome:
        if name == "buy now":
            reward, parts = scorer(self.product(state.product), state.options)
            return Outcome(replace(state, kind=DONE, reward=reward), reward, True, True, parts)
        if name == "back to search":
            return Outcome(State())
        if name in ("next >", "< prev"):
            turned = self._turn(state, name, self.url(state, session), rng)
            if turned:
                return Outcome(turned)
        if name in _SUB_NAMES:
            return Outcome(replace(state, kind=SUB, sub=_SUB_NAMES[name]))
        return Outcome(self._open(state, name))

    def _turn(self, state: State, name: str, url: str, rng: Draws) -> State | None:
        """The state after a turn of the page; None if `name` is an option value and not a turn."""
        apparent = next((kind for kind in KINDS if kind in url), INDEX)
        keywords = state.keywords or ()
        if apparent == RESULTS:
            return self._results(state, keywords, state.page + (1 if name == "next >" else -1), rng)
        if name == "< prev" and apparent == SUB:
            return replace(state, kind=ITEM, sub="")
        if name == "< prev" and apparent == ITEM:
            return self._results(state, keywords, state.page, rng)
        return None

    def _open(self, state: State, name: str) -> State:
        """The state after a click on a product's link or on an option value."""
        if state.kind == ITEM:
            group = self.item(state.product).group_of[name]
            return replace(state, options={**state.options, group: name})
        asin = name.upper()
        number = self.catalogue.numbers.get(asin)
        if number is None:
            raise Refused(f"no product has the ASIN {asin}: the original looks links up in upper case")
        return replace(state, kind=ITEM, product=number, visited=state.visited | {asin})
