"""The credit page in a real browser: its numbers, its keys, its looks, and texts that want to be markup.

Needs Debian's chromium and playwright (`make browser` installs both); else the tests are skipped with a sentence.
"""

import numpy as np
import pytest

from agentrl.report import write_credit_page
from tests.report.conftest import busy_seconds
from tests.report.contrast import CONTRAST
from tests.report.pages import credits_of, data_of, graph_of, household

pytestmark = pytest.mark.browser


@pytest.fixture
def open_page(open_file, tmp_path):
    """Open the page of some data."""

    def opened(data, anchor="", **options):
        write_credit_page(data, tmp_path / "credit.html")
        return open_file(tmp_path / "credit.html", anchor, **options)

    return opened


def cells(page):
    """What the cells say, by step."""
    return {
        int(cell.get_attribute("data-step")): cell.query_selector("text").text_content()
        for cell in page.query_selector_all(".cell")
    }


def test_every_cell_and_arrow_has_the_methods_number(open_page):
    graph = graph_of(household())
    page = open_page(data_of(graph, "grpo", "gigpo", "salt"))
    for name, credit in credits_of(graph, "grpo", "gigpo", "salt").items():
        page.click(f"[data-method={name}]")
        shown = cells(page)
        assert len(shown) == len(graph)
        for row, text in shown.items():
            assert float(text) == pytest.approx(credit.advantage[row], abs=0.0051)
        arrows = page.query_selector_all(".edge")
        assert sum(int(a.get_attribute("data-uses")) for a in arrows) == len(graph)
        action = next(a for a in arrows if a.get_attribute("data-action") == "go kitchen")
        rows = [i for i in range(len(graph)) if graph.names["action"][graph.action[i]] == "go kitchen"]
        assert float(action.get_attribute("data-mean")) == pytest.approx(np.mean(credit.advantage[rows]), abs=1e-4)
    visits = {n.get_attribute("data-visits") for n in page.query_selector_all(".node")}
    assert visits == {"4", "3", "2", "1", "0"}
    assert page.said == [] and len(set(page.asked)) == 1


def test_the_keyboard_reaches_steps_episodes_states_and_methods(open_page):
    page = open_page(data_of(graph_of(household()), "grpo", "gigpo"))
    chosen = lambda: int(page.query_selector(".cell.selected").get_attribute("data-step"))  # noqa: E731
    page.keyboard.press("ArrowRight")
    assert chosen() == 0  # the first key chooses the first step
    page.keyboard.press("ArrowRight")
    assert chosen() == 1
    page.keyboard.press("ArrowDown")
    assert chosen() == 4  # turn 1 of "detour"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("n")  # "hall" again
    assert chosen() == 5
    page.keyboard.press("n")
    assert chosen() == 8
    page.keyboard.press("n")
    assert chosen() == 0
    page.keyboard.press("2")
    assert page.query_selector("[data-method=gigpo]").get_attribute("aria-pressed") == "true"
    assert page.evaluate("location.hash") == "#row=0&method=gigpo"


def test_the_address_leads_back_to_the_step(open_page):
    data = data_of(graph_of(household()), "grpo", "gigpo")
    page = open_page(data, "#row=7&method=gigpo")
    assert page.query_selector(".cell.selected").get_attribute("data-step") == "7"
    assert page.text_content("#saw") == "fridge" and page.text_content("#answered") == "go table"
    parts = page.text_content("#parts")
    assert f"{data.methods[1].parts['step_advantage'][7]:.3g}" in parts
    assert open_page(data, "#row=999&method=none").query_selector(".cell.selected") is None


def test_episodes_are_filtered_and_steps_coloured_by_other_columns(open_page):
    page = open_page(data_of(graph_of(household()), "gigpo"))
    page.select_option("#filter", "not succeeded")
    assert set(cells(page)) == {8, 9, 10, 11}
    page.select_option("#measure", "reward")
    page.select_option("#filter", "all episodes")
    assert cells(page)[2] == "+1.00" and cells(page)[0] == "0.00"


def test_hostile_texts_are_shown_and_never_run(open_page):
    rows = household()
    rows[0]["state"] = "</script><script>window.x=1</script><img src=y onerror='window.x=1'>"
    rows[0]["action"] = "\u202eabc \ud83d " + "A" * 100_000
    page = open_page(data_of(graph_of(rows), "grpo"), "#row=0")
    assert page.evaluate("window.x") is None
    assert page.text_content("#saw") == rows[0]["state"]
    assert page.text_content("#answered").endswith("more characters)")
    assert page.said == [] and len(set(page.asked)) == 1


def test_no_credit_no_states_and_no_steps_are_said(open_page):
    rows = [{"group": "g", "episode": e, "turn": 0, "reward": float(e == "a")} for e in "ab"]
    page = open_page(data_of(graph_of(rows), "grpo"))
    assert "No state of this group was left twice" in page.text_content("#merged")
    empty = data_of(graph_of(rows), "grpo").model_copy(update={"groups": [], "episodes": []})
    assert "There are no steps." in open_page(empty).text_content("#legend")


def test_a_large_group_opens_in_time(open_page):
    rows = [
        {"group": "g", "episode": f"e{e:03}", "turn": t, "reward": float(t == 49 and e % 3 == 0)}
        | {"state": f"s{(e * 7 + t) % 97}", "next_state": f"s{(e * 7 + t + 1) % 97}", "action": f"a{t % 5}"}
        for e in range(128)
        for t in range(50)
    ]
    page = open_page(data_of(graph_of(rows), "grpo", "gigpo", "salt"))
    assert len(page.query_selector_all(".cell")) == 6400
    assert 0 < busy_seconds(page) < 10  # a bound, not a measurement


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_the_window_and_texts_have_contrast(open_page, width, scheme):
    page = open_page(data_of(graph_of(household()), "grpo", "gigpo"), "#row=3", color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for selector in ("h1", ".soft", "td", "#merged"):
        assert page.evaluate(CONTRAST, selector) >= 4.5, selector
