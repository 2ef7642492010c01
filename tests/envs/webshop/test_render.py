"""Observations by hand, and HTML against an independent reading of it."""

from html.parser import HTMLParser

import pytest

from agentrl.envs.webshop import views


def walk(session, *actions):
    for action in actions:
        session.step(action)
    return session


@pytest.fixture
def session(shopper):
    """A session whose goal is the red rug."""
    found = shopper(0)
    return found if found.goal.key.startswith("human/B0RED") else shopper(1)


def test_index_page(session):
    words = session.goal.instruction
    assert session.observe("text") == f"WebShop [SEP] Instruction: [SEP] {words} [SEP] Search"
    assert session.observe("text_rich") == f"WebShop\nInstruction: \n{words}\n[button] Search [button_]\n"
    assert session.has_search_bar and session.clickables() == ("search",)


def test_results_page(session):
    walk(session, "search[red signature]", "click[b0red]", "click[< prev]")
    top = f"Instruction:\n{session.goal.instruction}\n[button] Back to Search [button_]\n"
    assert session.observe("text_rich") == top + (
        "Page 1 (Total results: 2)\n[button] Next > [button_]\n"
        '\n[clicked button] B0RED [clicked button_]\nRed "Signature" Rug\n$20.0\n'
        "\n[button] B0BLUE [button_]\nBlue Rug for Kids\n$10.0 to $30.0\n"
    )
    assert session.observe("text").endswith(
        'Next > [SEP] B0RED [SEP] Red "Signature" Rug [SEP] $20.0 [SEP] '
        "B0BLUE [SEP] Blue Rug for Kids [SEP] $10.0 to $30.0"
    )


def test_clicked_labels_are_those_quoted_in_the_url(session):
    walk(session, "search[rug]", "click[b0red]", "click[large]", "click[rose | gold]")
    lines = session.observe("text_rich").splitlines()
    assert lines[:3] == ["You have clicked color.", "You have clicked large.", "You have clicked rose | gold."]
    assert "  [clicked button] color [clicked button_]" in lines  # a value named like a group, which the URL quotes
    assert "  [button] wine red [button_]" in lines


def test_values_that_json_escapes_never_show_as_clicked(session):
    walk(session, "search[blue]", "click[b0blue]", "click[café]", 'click[it\'s "new"]')
    assert "clicked" not in session.observe("text_rich")
    walk(session, 'search["signature" blue]', "click[b0blue]")
    assert session.observe("text_rich").startswith("You have clicked signature.\n")  # quoted by the query


def test_sub_pages(shopper, session):
    walk(session, "search[rug]", "click[b0red]", "click[features]")
    top = f"Instruction: [SEP] {session.goal.instruction} [SEP] Back to Search [SEP] < Prev"
    assert session.observe("text") == f'{top} [SEP] First point of Red "Signature" Rug [SEP] Second point'
    assert session.observe("text_rich").endswith('\n First point of Red "Signature" Rug\n Second point\n')
    walk(session, "click[< prev]", "click[reviews]")
    assert session.observe("text") == top
    walk(session, "click[< prev]", "click[description]")
    assert session.observe("text") == f'{top} [SEP] About Red "Signature" Rug.'


def test_attribute_page_is_an_option(shopper):
    session = walk(shopper(0, show_attributes=True), "search[red signature]", "click[b0red]")
    assert session.clickables()[4:7] == ("reviews", "attributes", "buy now")
    walk(session, "click[attributes]")
    kinds = "garden\narea rugs\nHome › Decor › Rugs\n"
    assert session.observe("text_rich").endswith(f"\n machine washable\n non slip\n{kinds}")


def test_done_page(session):
    walk(session, "search[blue]", "click[b0blue]", 'click[it\'s "new"]', "click[signature]", "click[buy now]")
    text = session.observe("text_rich")
    options = '{"fit": "signature", "style": "it\\u0027s \\"new\\""}'
    assert text.startswith("Thank you for shopping with us!\nYour code: \nNone\n (Paste it in your MTurk interface.)\n")
    assert f"\nasin\nB0BLUE\noptions\n{options}\nattrs\nNone\n" in text
    assert text.endswith(f"Your score (min 0.0, max 1.0)\n{session.state.reward}\nReward Details \nNone\n")


def test_blank_texts():
    pieces = [(views.TEXT, text) for text in ("", "  ", " \n ", "\xa0", " x ", "\t")]
    shown = views.shown(*pieces)
    assert [segment.text for segment in shown] == [" ", "\xa0", " x ", " "]
    assert views.as_text(shown) == " [SEP]  [SEP] x [SEP] "


class Reader(HTMLParser):
    """Visible texts with their tags, and the click names, as a browser user would find them."""

    def __init__(self):
        super().__init__()
        self.tag, self.texts, self.names, self.values = "", [], [], []

    def handle_starttag(self, tag, attrs):
        self.tag = tag
        if tag == "input" and dict(attrs).get("type") == "radio":
            self.values.append(dict(attrs)["value"])

    def handle_endtag(self, tag):
        self.tag = ""

    def handle_data(self, data):
        if self.tag in ("p", "pre", "button", "label", "a"):
            self.texts.append(data)
            if self.tag in ("button", "a"):
                self.names.append(data.lower())


@pytest.mark.parametrize(
    "actions",
    [
        (), ("search[rug]",), ("search[rug]", "click[b0red]", "click[wine red]"), ("search[<q> none]",),
        ("search[blue]", "click[b0blue]", 'click[it\'s "new"]'), ("search[rug]", "click[b0red]", "click[features]"),
        ("search[rug]", "click[b0red]", "click[large]", "click[buy now]"),
    ],
)  # fmt: skip
def test_html_shows_what_text_shows(session, actions):
    walk(session, *actions)
    reader = Reader()
    reader.feed(session.observe("html"))
    assert " [SEP] ".join(text.strip() for text in reader.texts) == session.observe("text")
    assert set(reader.names) | set(reader.values) == set(session.clickables())
    assert ('id="search_input"' in session.observe("html")) == session.has_search_bar
