"""The page machine, by hand: every rule and quirk."""

import json
import random

import pytest

from agentrl.envs.webshop.pages import parse

INDEX, RESULTS, ITEM, SUB, DONE = "", "search_results", "item_page", "item_sub_page", "done"


@pytest.fixture
def session(shopper):
    """A session whose goal is the red rug."""
    found = shopper(0)
    return found if found.goal.key.startswith("human/B0RED") else shopper(1)


def walk(session, *actions):
    """The last outcome."""
    for action in actions:
        outcome = session.step(action)
    return outcome


@pytest.mark.parametrize(
    ("action", "parsed"),
    [
        ("search[Red Rug]", ("search", "red rug")),
        ("click[< Prev] and more", ("click", "< prev")),
        ("click[a] b]", ("click", "a] b")),
        ("search[a [b] c]", ("search[a ", "b] c")),  # the last bracket that leaves a name and an argument
        ("Search[x]", ("Search", "x")),
        (" search[x]", (" search", "x")),
        ("search[]", ("search[]", "")),
        ("search[a\nb]", ("search[a\nb]", "")),
        ("buy", ("buy", "")),
    ],
)
def test_actions_are_parsed_greedily(action, parsed):
    assert parse(action) == parsed


@pytest.mark.parametrize("action", ["Search[rug]", "click[search]", "click[rug]", "search[]", "rug", "click[next >]"])
def test_what_is_not_understood_does_nothing(session, action):
    before = session.state
    outcome = session.step(action)
    assert (outcome.accepted, outcome.reward, outcome.done) == (False, 0.0, False) and session.state is before


def test_a_perfect_purchase(session):
    outcome = walk(session, "search[red rug]", "click[b0red]", "click[wine red]", "click[large]", "click[buy now]")
    assert outcome.done and outcome.reward == 1.0
    assert session.observe("url").endswith("/done/" + session.id + "/B0RED/{'color': 'wine red', 'size': 'large'}")
    assert session.clickables() == () and not session.has_search_bar
    assert walk(session, "search[tea]").accepted  # the session goes on
    assert walk(session, "click[b0tea]", "click[buy now]").done


def test_search_works_on_every_page_and_keeps_blanks(session):
    walk(session, "search[red  rug ]")
    assert session.state.keywords == ("red", "", "rug", "")
    assert walk(session, "click[b0red]", "click[description]", "search[tea]").accepted
    assert session.state.kind == RESULTS and session.state.product == -1


def test_pages_turn_without_end(session):
    walk(session, "search[rug]")
    assert session.clickables() == ("back to search", "next >", "b0red", "b0blue")
    walk(session, "click[next >]", "click[next >]")
    assert session.state.page == 3
    assert session.clickables() == ("back to search", "< prev", "next >")
    assert "Page 3 (Total results: 2)" in session.observe("text")
    walk(session, "click[< prev]", "click[< prev]")
    assert session.state.page == 1


def test_previous_keeps_options_on_sub_pages_and_drops_them_on_results(session):
    walk(session, "search[rug]", "click[b0red]", "click[wine red]", "click[features]")
    assert session.state.kind == SUB and session.clickables() == ("back to search", "< prev")
    walk(session, "click[< prev]")
    assert session.state.kind == ITEM and session.state.options == {"color": "wine red"}
    walk(session, "click[< prev]")
    assert session.state.kind == RESULTS and session.state.options == {} and session.state.visited == {"B0RED"}
    walk(session, "click[back to search]")
    assert session.state.visited == frozenset() and session.state.keywords is None


def test_names_collide_in_the_order_of_dispatch(session):
    walk(session, "search[blue rug]", "click[b0blue]")
    assert session.clickables() == (
        "back to search", "< prev", "description", "features", "reviews", "buy now",
        "search", 'it\'s "new"', "café", "next >", "signature",
    )  # fmt: skip
    assert not walk(session, "click[search]").accepted
    walk(session, "click[café]")
    assert session.state.options == {"fit": "café"}  # of two groups with a value the later one gets it
    walk(session, "click[next >]")
    assert session.state.kind == ITEM and session.state.options == {"fit": "café", "style": "next >"}
    walk(session, "click[features]")
    assert session.state.kind == SUB
    walk(session, "click[< prev]", "click[< prev]")
    assert session.state.kind == RESULTS


def test_the_page_is_told_from_the_url(session):
    walk(session, "search[search_results rug]", "click[b0blue]", "click[next >]")
    assert session.state.kind == RESULTS and session.state.page == 2  # not an option of that name
    walk(session, "search[search_results rug]", "click[b0red]", "click[< prev]")
    assert session.state.page == 0 and "Page 0 (Total results: 2)" in session.observe("text")
    assert session.clickables() == ("back to search", "next >")
    walk(session, "search[item_page rug]", "click[b0red]", "click[description]", "click[< prev]")
    assert session.state.kind == RESULTS  # the sub-page passes for an item page


def test_urls(session):
    sid = session.id
    assert session.observe("url") == f"http://127.0.0.1:3000/{sid}"
    walk(session, "search[Red RUG]")
    assert session.observe("url") == f"http://127.0.0.1:3000/search_results/{sid}/red+rug/1"
    walk(session, "click[b0red]", "click[wine red]")
    address = f"http://127.0.0.1:3000/item_page/{sid}/B0RED/red+rug/1/"
    assert session.observe("url") == address + '{"color": "wine red"}'
    walk(session, "click[reviews]")
    sub = f"http://127.0.0.1:3000/item_sub_page/{sid}/B0RED/red+rug/1/Reviews/"
    assert session.observe("url") == sub + "{'color': 'wine red'}"


def test_prefix_words(session, shopper):
    walk(session, "search[<q> area rugs]")
    assert session.clickables()[2:] == ("b0red", "b0blue")
    walk(session, "search[<c> grocery store]")  # a single word
    assert session.clickables()[2:] == ("b0tea",)
    walk(session, "search[<q> nothing]")
    assert "Total results: 0" in session.observe("text")


@pytest.mark.parametrize("query", ["<a> non slip", "<a>", "<c>", "<r>"])
def test_what_crashes_the_original_is_refused_and_the_page_stays(session, query):
    walk(session, "search[rug]")
    before = session.state
    outcome = walk(session, f"search[{query}]")
    assert session.state is before and session.error and not outcome.accepted
    walk(session, "click[next >]")
    assert session.error == ""


def test_lenient_shops_answer_what_crashes_the_original(shopper):
    session = shopper(0, strict=False)
    walk(session, "search[<a> non slip]")
    assert session.clickables()[2:] == ("b0red",)
    assert walk(session, "search[<c>]").accepted and "Total results: 0" in session.observe("text")
    walk(session, "search[<r>]")
    assert set(session.clickables()[2:]) == {"b0red", "b0blue", "b0tea"}


def test_random_search_draws_anew_at_every_turn(tmp_path, writer, row_of, shopper):
    rows = [row_of(f"B{i:03}", f"Thing {i}", query="q") for i in range(80)]
    wishes = {"B000": [{"instruction": "x", "instruction_attributes": ["a"], "instruction_options": []}]}
    writer(tmp_path, rows, {}, wishes)
    session, rng = shopper(0), random.Random(99)
    session.step("search[<r>]")
    for _ in range(3):
        want = rng.sample(range(80), 50)
        assert list(session.state.found) == want
        session.step("click[next >]")
    assert list(session.state.found) == rng.sample(range(80), 50)


def test_sessions_without_a_number_draw_a_name_and_a_goal(shopper, market):
    rng = random.Random(99)
    name = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=10))
    drawn = shopper(None)
    assert drawn.id == name and drawn.number == market.goals.draw(rng)
    assert shopper("me").id == "me" and shopper("me").number == market.goals.draw(random.Random(99))


def test_item_page_json_is_ascii(session):
    walk(session, "search[blue]", "click[b0blue]", "click[café]")
    assert session.observe("url").endswith(json.dumps({"fit": "café"}))
