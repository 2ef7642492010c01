"""docs/run-folder.md lists every value of the columns `status` and `ending`."""

import re
from pathlib import Path

from agentrl.types import Status

PAGE = (Path(__file__).parents[2] / "docs" / "run-folder.md").read_text()


def test_the_page_lists_every_status():
    rows = re.findall(r"^\|(?: `(\w+)`)? \| (\d+) \| `(\w+)` \| \S", PAGE, re.M)
    assert [(int(number), name) for _, number, name in rows] == [(one.value, one.name.lower()) for one in Status]
    assert [name for column, _, name in rows if column] == ["ok", "done"]
    assert [column for column, _, _ in rows if column] == ["status", "ending"]
