"""The inspector in a real browser: methods as forms, search, a run that goes on, texts that want to be markup."""

import time

import pytest

from agentrl.config import resolve
from agentrl.credit import CreditMethod, assign
from agentrl.graph import read_graph, write_graph
from tests.report.contrast import CONTRAST
from tests.report.pages import graph_of, household
from tests.report.test_browser import cells
from tests.serve.test_inspector import serving
from tests.toys.stored_run import graph, store, stored_run

pytestmark = pytest.mark.browser


@pytest.fixture
def run(tmp_path):
    folder = stored_run(tmp_path / "house")
    write_graph(graph(9), folder / "evaluations" / "end-greedy.safetensors")
    return folder


@pytest.fixture
def open_page(browser, run):
    """Open the inspector; what the console says and every address that is asked for are kept."""
    served = serving(run)
    client = next(served)
    contexts = []

    def opened(anchor="", **options):
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.address = client.address.geturl()
        page.goto(f"{page.address}{anchor}")
        page.wait_for_selector("body[data-ready=yes]")
        return page

    yield opened
    for context in contexts:
        context.close()
    served.close()


def until(page, selector, fits):
    """Wait until a text fits; the page's policy forbids Playwright's own way, which evaluates a text as a script."""
    end = time.monotonic() + 20
    while not fits(page.text_content(selector)):
        assert time.monotonic() < end, page.text_content(selector)
        page.wait_for_timeout(50)


def shown(page, row):
    """The number in the cell of a row, when it is there."""
    return float(cells(page)[row])


def test_it_opens_at_the_newest_iteration_with_the_credit_the_run_gave(open_page, run):
    page = open_page()
    stored = read_graph(run / "graphs" / "000001.safetensors").column("advantage")
    assert page.text_content("#subtitle").startswith("iteration 1 ·")
    assert {row: pytest.approx(a, abs=0.0051) for row, a in enumerate(stored)} == {
        row: float(text) for row, text in cells(page).items()
    }
    assert [b.text_content() for b in page.query_selector_all("#methods button")] == ["as trained", "gigpo"]
    assert page.text_content("#standing").startswith("house: the run was stopped before its end")
    assert [c.text_content().strip(" ×") for c in page.query_selector_all("#shown .chip")] == [
        "as trained",
        "gigpo gamma=0.5",
    ]
    assert page.said == [] and all(one.startswith(page.address) for one in page.asked)


def test_a_method_is_added_with_its_options_and_a_bad_one_is_told(open_page, run):
    page = open_page()
    page.select_option("#name", "gigpo")
    page.fill("#fields input[name=gamma]", "0.1")
    page.click("#adding > button")
    page.wait_for_selector('[data-method="gigpo\'"]')
    steps = read_graph(run / "graphs" / "000001.safetensors")
    due = assign(resolve(CreditMethod, {"name": "gigpo", "gamma": 0.1}), steps).advantage
    assert page.get_attribute('[data-method="gigpo\'"]', "aria-pressed") == "true"
    assert [shown(page, row) for row in range(len(steps))] == pytest.approx(due.tolist(), abs=0.0051)
    page.select_option("#name", "poad")
    page.click("#adding > button")
    until(page, "#problem", bool)
    assert "poad needs the column" in page.text_content("#problem")
    assert len(page.query_selector_all("#methods button")) == 3
    page.click("[aria-label='remove gigpo'] >> nth=0")
    until(page, "#methods", lambda text: text == "as trainedgigpo")
    page.click("[data-method=gigpo]")
    assert shown(page, 0) == pytest.approx(due[0], abs=0.0051)


def test_a_search_leads_to_the_step_and_the_step_to_its_branch_command(open_page, run):
    page = open_page()
    page.fill("#text", "closet")
    page.keyboard.press("Enter")
    page.wait_for_selector("#found tr[data-row]")
    assert page.text_content("#found b") == "1 of 3 episodes"
    page.focus("#found tr[data-row]")
    page.keyboard.press("Enter")
    assert page.text_content("#saw") == "bedroom" and page.text_content("#answered") == "go closet"
    assert not page.is_visible("#command")
    page.click("#branch")
    assert page.text_content("#command") == f"agentrl branch {run} --iteration 1 --episode 2 --turn 1"


def test_a_search_of_all_iterations_leads_to_the_step_of_another_one(open_page, run):
    page = open_page()
    page.fill("#text", "closet")
    page.select_option("#within", "iterations")
    page.click("#searching > button")
    page.wait_for_selector("#found tr[data-source='iteration:0']")
    assert page.text_content("#found b") == "2 of 6 episodes"
    assert "2 of 2 files searched, the newest first" in page.text_content("#found")
    assert page.text_content("#subtitle").startswith("iteration 1")
    page.click("#found tr[data-source='iteration:0']")
    until(page, "#subtitle", lambda text: text.startswith("iteration 0"))
    until(page, "#step", lambda text: "go closet" in text)
    assert page.is_visible("#found") and page.said == []


def test_the_address_leads_back_to_the_step_of_another_iteration(open_page):
    page = open_page()
    page.select_option("#source", "iteration:0")
    until(page, "#subtitle", lambda text: text.startswith("iteration 0"))
    page.keyboard.press("ArrowRight")
    anchor = page.evaluate("location.hash")
    again = open_page(anchor)
    assert again.text_content("#subtitle").startswith("iteration 0 ·") and again.text_content("#saw") == "hall 0"
    again.select_option("#source", "evaluation:end-greedy")
    until(again, "#subtitle", lambda text: text.startswith("evaluation"))
    again.keyboard.press("ArrowRight")
    assert again.text_content("#saw") == "hall 9" and again.query_selector("#branch") is None
    assert [b.text_content() for b in again.query_selector_all("#methods button")] == ["gigpo"]


def test_it_follows_a_run_and_says_when_the_server_is_gone(browser, run, open_page):
    page = open_page()
    page.check("#follow")
    store(run, 2)
    until(page, "#subtitle", lambda text: text.startswith("iteration 2"))
    page.context.set_offline(True)
    until(page, "#problem", bool)
    assert "agentrl report --serve does not answer" in page.text_content("#problem")
    page.context.set_offline(False)
    until(page, "#problem", lambda text: not text)


def test_hostile_texts_are_shown_and_never_run(open_page, run):
    rows = household()
    rows[0]["state"] = "</script><script>window.x=1</script><img src=y onerror='window.x=1'>"
    write_graph(graph_of(rows), run / "graphs" / "000002.safetensors")
    page = open_page("#source=iteration:2&row=0&method=gigpo")
    assert page.text_content("#problem").startswith("these steps have no stored credit")
    assert page.text_content("#methods") == "gigpo" and page.text_content("#saw") == rows[0]["state"]
    page.fill("#text", "onerror")
    page.keyboard.press("Enter")
    page.wait_for_selector("#found tr[data-row]")
    assert "<img src=y" in page.text_content("#found") and page.evaluate("window.x") is None


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_the_window_and_texts_have_contrast(open_page, width, scheme):
    page = open_page(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    page.fill("#text", "hall")
    page.keyboard.press("Enter")
    page.wait_for_selector("#found tr[data-row]")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for selector in ("#standing", "#paper", "#found td", ".chip"):
        assert page.evaluate(CONTRAST, selector) >= 4.5, selector
