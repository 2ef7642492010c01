"""The content of a page as a list of visible segments in document order, and the forms in which it is written.

A segment's kind says how `text_rich` marks it: plain text, button, option label or product link.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from agentrl.envs.webshop.products import Product

TEXT, BUTTON, LABEL, LINK = range(4)
SEPARATOR = " [SEP] "
BACK, PREVIOUS, NEXT, BUY = "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews", "Attributes")
_ASCII_BLANKS = " \n\t\f\r"


class Segment(NamedTuple):
    """A piece of visible text."""

    kind: int
    text: str


class ItemView(NamedTuple):
    """The item page of one product below its header, in every form that does not depend on the session.

    Attributes:
        segments: its segments.
        text: the segments as the observation `text`.
        rich: the segments as `text_rich`, with no option clicked.
        clickables: everything clickable on the page, lower-case buttons first.
        group_of: option value -> the group that a click on the value sets; of several groups with this value, the last.
    """

    segments: tuple[Segment, ...]
    text: str
    rich: str
    clickables: tuple[str, ...]
    group_of: Mapping[str, str]


class RowView(NamedTuple):
    """One product on a results page: as `text`, as `text_rich` unvisited and visited, and its click name."""

    text: str
    rich: str
    rich_visited: str
    clickable: str


def shown(*pieces: tuple[int, str]) -> list[Segment]:
    """Segments of (kind, text); like the original's parser, blank segments shrink to one blank, or are left out if they
    hold a newline."""
    found = []
    for kind, text in pieces:
        if text.strip(_ASCII_BLANKS):
            found.append(Segment(kind, text))
        elif text and "\n" not in text:
            found.append(Segment(kind, " "))
    return found


def as_text(segments: Iterable[Segment]) -> str:
    """The observation `text`."""
    return SEPARATOR.join(segment.text.strip() for segment in segments)


def as_rich(segments: Iterable[Segment], url: str = "", visited: Iterable[str] = ()) -> str:
    """The observation `text_rich`.

    Args:
        segments: the page.
        url: the page's address; a label shows as clicked if the address holds it between double quotes.
        visited: ASINs whose links show as clicked.
    """
    page = clicked = ""
    for kind, text in segments:
        line = text
        if kind == BUTTON:
            line = f"[button] {text} [button_]"
        elif kind == LABEL:
            done = "clicked " if f'"{text}"' in url else ""
            clicked = f"You have clicked {text}.\n{clicked}" if done else clicked
            line = f"  [{done}button] {text} [{done}button_]"
        elif kind == LINK:
            done = "clicked " if text in visited else ""
            line = f"\n[{done}button] {text} [{done}button_]"
        page += line + "\n"
    return clicked + page


def index_page(instruction: str) -> list[Segment]:
    """The page with the search bar."""
    return shown((TEXT, "WebShop"), (TEXT, "Instruction: "), (TEXT, instruction), (BUTTON, "Search"))


def header(instruction: str, *buttons: str) -> list[Segment]:
    """The top of every other page but the last."""
    return shown((TEXT, "Instruction:"), (TEXT, instruction), *((BUTTON, name) for name in buttons))


def results_header(instruction: str, page: int, total: int) -> list[Segment]:
    """The results page down to its first product."""
    count = Segment(TEXT, f"Page {page} (Total results: {total})")
    turn = (PREVIOUS, NEXT) if page > 1 else (NEXT,)
    return [*header(instruction, BACK), count, *(Segment(BUTTON, name) for name in turn)]


def row_segments(product: Product) -> list[Segment]:
    """One product on a results page."""
    return shown((LINK, product.asin), (TEXT, product.title), (TEXT, product.price_tag))


def row_view(product: Product) -> RowView:
    """One product on a results page, in all its forms."""
    segments = row_segments(product)
    return RowView(
        text=as_text(segments),
        rich=as_rich(segments),
        rich_visited=as_rich(segments, visited=(product.asin,)),
        clickable=product.asin.lower(),
    )


def item_view(product: Product, *, show_attributes: bool) -> ItemView:
    """The item page below its header."""
    groups = [
        piece
        for name, values in product.options.items()
        for piece in ((TEXT, name), *((LABEL, value) for value in values))
    ]
    subs = SUB_PAGES if show_attributes else SUB_PAGES[:3]
    segments = shown(
        *groups,
        (TEXT, product.title),
        (TEXT, f"Price: {product.price_tag}"),
        (TEXT, "Rating: N.A."),
        *((BUTTON, name) for name in (*subs, BUY)),
    )
    buttons = (BACK, PREVIOUS, *subs, BUY)
    group_of = {value: name for name, values in product.options.items() for value in values}
    return ItemView(
        segments=tuple(segments),
        text=as_text(segments),
        rich=as_rich(segments),
        clickables=tuple(dict.fromkeys((*(name.lower() for name in buttons), *group_of))),
        group_of=group_of,
    )


def sub_page(product: Product, name: str) -> list[Segment]:
    """One of an item's further pages below its header."""
    if name == "Description":
        return shown((TEXT, product.description))
    if name == "Features":
        return shown(*((TEXT, f" {bullet}") for bullet in product.bullets))
    if name == "Attributes":
        kinds = (product.category, product.query, product.product_category)
        return shown(*((TEXT, f" {attribute}") for attribute in product.attributes), *((TEXT, kind) for kind in kinds))
    return []


def done_page(asin: str, options: Mapping[str, str], reward: float) -> list[Segment]:
    """The page after a purchase; the original fills most of it with None."""
    purchased = ("attrs", "None", "category", "None", "query", "None", "product category", "None")
    target = ("asin", "options", "attrs", "price upper", "instuction text", "category", "product category", "query")
    texts = (
        "Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)",
        "Purchased", "asin", asin, "options", options_json(options), *purchased,
        "Target", *target, "Goal ", "None",
        "Reward", "Your score (min 0.0, max 1.0)", str(reward), "Reward Details ", "None",
    )  # fmt: skip
    return [Segment(TEXT, text) for text in texts]


def options_json(options: Mapping[str, str]) -> str:
    """Options as the templates print them: keys sorted, safe inside HTML."""
    text = json.dumps(options, sort_keys=True)
    for sign in "<>&'":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def clickables(segments: Sequence[Segment]) -> tuple[str, ...]:
    """What can be clicked on a page without options: its buttons, then its links, lower case."""
    names = [s.text.lower() for kind in (BUTTON, LINK) for s in segments if s.kind == kind]
    return tuple(dict.fromkeys(names))
