"""The pages look as they did when a person last looked at them: at two widths, light and dark."""

import base64

import pytest

from tests.report.looks import COMPARE, FOLDER, pictures

pytestmark = pytest.mark.browser
MEAN, FAR = 1.0, 0.005  # of 255, and of the pixels: edges may differ, layout and colours may not


def test_the_pages_look_as_in_the_reference_pictures(browser, tmp_path):
    blank, found = browser.new_page(), pictures(browser, tmp_path)
    _, ruler = next(found)
    if ruler != (FOLDER / "ruler.txt").read_text().strip():
        pytest.skip(
            "letters are of another width on this machine: compare by eye, python -m tests.report.looks --write"
        )
    apart = {}
    for name, data in found:
        stored = base64.b64encode((FOLDER / f"{name}.png").read_bytes()).decode()
        mean, far = blank.evaluate(COMPARE, [data, stored])
        if mean > MEAN or far > FAR:
            apart[name] = (round(mean, 2), round(far, 4))
            (tmp_path / f"{name}.png").write_bytes(base64.b64decode(data))
    assert not apart, f"look at {tmp_path} and, if it is right, run python -m tests.report.looks --write"


def test_a_page_of_other_colours_or_another_layout_would_be_noticed(browser):
    blank = browser.new_page()
    stored = {
        name: base64.b64encode((FOLDER / f"{name}.png").read_bytes()).decode()
        for name in ("credit-1280-light", "credit-1280-dark", "tree-1280-light", "report-1280-light")
    }
    for name, data in stored.items():
        assert blank.evaluate(COMPARE, [data, data]) == [0, 0]
        for other in stored.keys() - {name}:
            mean, far = blank.evaluate(COMPARE, [data, stored[other]])
            assert mean > MEAN or far > FAR, (name, other)
