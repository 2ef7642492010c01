"""Pages written as observations: `text`, `text_rich`, `html`, `url`."""

from collections.abc import Callable, Mapping
from html import escape
from types import MappingProxyType

from agentrl.envs.webshop import views
from agentrl.envs.webshop.pages import DONE, INDEX, ITEM, RESULTS, SUB, Shop, State
from agentrl.envs.webshop.views import BACK, BUTTON, LABEL, LINK, PREVIOUS, SEPARATOR, Segment


def segments(shop: Shop, state: State, instruction: str) -> list[Segment]:
    """Everything visible on a page, in document order."""
    if state.kind == INDEX:
        return views.index_page(instruction)
    if state.kind == RESULTS:
        rows = [segment for n in shop.listed(state) for segment in views.row_segments(shop.product(n))]
        return views.results_header(instruction, state.page, len(state.found)) + rows
    if state.kind == DONE:
        return views.done_page(shop.product(state.product).asin, state.options, state.reward)
    top = views.header(instruction, BACK, PREVIOUS)
    if state.kind == SUB:
        return top + views.sub_page(shop.product(state.product), state.sub)
    return [*top, *shop.item(state.product).segments]


def text(shop: Shop, state: State, instruction: str, session: str) -> str:
    """The observation `text`. Item and results pages are put together from cached texts of their products."""
    if state.kind == ITEM:
        return f"{views.as_text(views.header(instruction, BACK, PREVIOUS))}{SEPARATOR}{shop.item(state.product).text}"
    if state.kind == RESULTS:
        top = views.as_text(views.results_header(instruction, state.page, len(state.found)))
        return SEPARATOR.join((top, *(shop.row(number).text for number in shop.listed(state))))
    return views.as_text(segments(shop, state, instruction))


def text_rich(shop: Shop, state: State, instruction: str, session: str) -> str:
    """The observation `text_rich`."""
    if state.kind == RESULTS:
        rows = ((shop.row(n), shop.product(n).asin in state.visited) for n in shop.listed(state))
        top = views.as_rich(views.results_header(instruction, state.page, len(state.found)))
        return top + "".join(row.rich_visited if seen else row.rich for row, seen in rows)
    if state.kind == ITEM:
        address = shop.url(state, session)
        if '"' not in address:
            return views.as_rich(views.header(instruction, BACK, PREVIOUS)) + shop.item(state.product).rich
        return views.as_rich(segments(shop, state, instruction), address)
    return views.as_rich(segments(shop, state, instruction))


def html(shop: Shop, state: State, instruction: str, session: str) -> str:
    """The observation `html`, with the same visible content as the original's page.

    The markup is our own, without the original's links and styles.
    """
    body = "".join(f"{_tag(segment, state)}\n" for segment in segments(shop, state, instruction))
    bar = '<input id="search_input" name="search_query">\n' if state.kind == INDEX else ""
    return f"<!DOCTYPE html>\n<html>\n<head><title>WebShop</title></head>\n<body>\n{bar}{body}</body>\n</html>"


def _tag(segment: Segment, state: State) -> str:
    words = escape(segment.text)
    if segment.kind == BUTTON:
        return f'<button class="btn">{words}</button>'
    if segment.kind == LABEL:
        checked = " checked" if segment.text in state.options.values() else ""
        return f'<input type="radio" value="{words}"{checked}><label>{words}</label>'
    if segment.kind == LINK:
        return f'<a class="product-link">{words}</a>'
    return f"<pre>{words}</pre>" if segment.text == " " else f"<p>{words}</p>"


def url(shop: Shop, state: State, instruction: str, session: str) -> str:
    """The observation `url`: the address of the page."""
    return shop.url(state, session)


FORMS: Mapping[str, Callable[[Shop, State, str, str], str]] = MappingProxyType(
    {"text": text, "text_rich": text_rich, "html": html, "url": url}
)
