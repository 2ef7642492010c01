"""Pages in the browser of tests/conftest.py."""

import pytest


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
