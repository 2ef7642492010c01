"""A browser for the tests marked `browser`: Debian's Chromium, driven by playwright (`make browser` installs both)."""

import shutil

import pytest

pytest_plugins = ["tests.cpu_seconds"]

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
