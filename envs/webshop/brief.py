"""A short form of the pages for small models (`observation=brief`), which the original does not have.

Texts are in lower case and without markup, and a product is named by its place on the page. The actions are
`click[item 1]` to `click[item 5]` for the products of a page, `click[VALUE]` for options, and the original's buttons.
`resolve` turns these actions into the original's actions.
"""

import re

from agentrl.envs.webshop.goals import NO_CEILING
from agentrl.envs.webshop.pages import DONE, INDEX, ITEM, RESULTS
from agentrl.envs.webshop.products import Product
from agentrl.envs.webshop.session import Session
from agentrl.envs.webshop.words import instruction_words

SHOWN = 5  # products of a results page that are named
_PLACE = re.compile(r"click\[item (\d+)\]$")
_WORDS = re.compile(r"[\w'.$-]+")


def plain(text: str) -> str:
    """The words of a text in lower case, with single blanks between them."""
    bare = (run.rstrip("'.$-") for run in _WORDS.findall(text.lower()))
    return " ".join(word for word in bare if word)


def brief(session: Session) -> str:
    """The page with one or two lines per product."""
    state, shop = session.state, session.market.shop
    if state.kind == INDEX:
        return "search page"
    if state.kind == RESULTS:
        rows = [f"item {n} : {row(shop.product(i))}" for n, i in enumerate(shop.listed(state)[:SHOWN], 1)]
        return "\n".join((f"results page {state.page}", *rows))
    if state.kind == DONE:
        return "bought"
    product = shop.product(state.product)
    if state.kind != ITEM:
        return f"{state.sub.lower()} page"
    groups = [
        f"{group} : " + " , ".join(f"( {v} )" if state.options.get(group) == v else v for v in values)
        for group, values in product.options.items()
    ]
    return "\n".join((f"item page : {row(product)}", *groups))


def row(product: Product) -> str:
    """Title and price. The price is rounded down to tens of dollars, so that there are few different prices."""
    return f"{plain(product.title)} ${int(product.prices[0] // 10 * 10)}"


def task(session: Session) -> str:
    """The instruction's own words and its price ceiling. The text begins with `find`, so that a blank precedes each
    word of the instruction."""
    ceiling = session.goal.price_upper
    words = instruction_words(session.goal.instruction)
    return f"find {words}" if ceiling == NO_CEILING else f"find {words} under ${int(ceiling)}"


def brief_actions(session: Session) -> tuple[str, ...]:
    """The listed actions of a page: products by place, options not yet selected, and the buttons that it needs."""
    state = session.state
    if state.kind == RESULTS:
        places = len(session.market.shop.listed(state)[:SHOWN])
        return (*(f"click[item {n}]" for n in range(1, places + 1)), "click[back to search]")
    if state.kind == ITEM:
        view = session.market.shop.item(state.product)
        options = (value for value, group in view.group_of.items() if state.options.get(group) != value)
        return (*(f"click[{value}]" for value in options), "click[buy now]", "click[< prev]")
    return tuple(f"click[{name}]" for name in session.clickables() if name != "search")


def resolve(session: Session, action: str) -> str:
    """The original's action; a place that the page does not have stays as written and has no effect."""
    place = _PLACE.match(action)
    if not place or session.state.kind != RESULTS:
        return action
    rows = session.market.shop.listed(session.state)[:SHOWN]
    number = int(place[1]) - 1
    return f"click[{session.market.shop.row(rows[number]).clickable}]" if 0 <= number < len(rows) else action
