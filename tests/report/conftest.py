"""A browser for the tests marked `browser`: Debian's Chromium, driven by playwright (`make browser` installs both)."""

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium, or make browser")
    api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install playwright, or make browser")
    with api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


def busy_seconds(page):
    """CPU seconds of the page's main thread so far."""
    metrics = page.times.send("Performance.getMetrics")["metrics"]
    return next(one["value"] for one in metrics if one["name"] == "TaskDuration")


@pytest.fixture
def open_file(browser):
    """Open a page's file offline; what its console says and what it asks for are kept in `said` and `asked`."""
    contexts = []

    def opened(path, anchor="", **options):
        context = browser.new_context(offline=True, **{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.said, page.asked = [], []
        page.times = context.new_cdp_session(page)
        page.times.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(f"file://{path}{anchor}")
        page.wait_for_selector("body[data-ready=yes]")
        return page

    yield opened
    for context in contexts:
        context.close()
