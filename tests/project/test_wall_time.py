"""No test compares wall time with a bound: on a machine that others use too, it would fail at times."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
BOUND = re.compile(r"(monotonic|perf_counter|time\.time)\(\) - \w+ *<|\bwall_s(econds)? *<=? *\d\b")


def test_no_test_compares_wall_time_with_a_bound_of_seconds():
    found = [
        f"{path.relative_to(TESTS)}:{number}: {line.strip()}"
        for path in sorted(TESTS.rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if BOUND.search(line)
    ]
    assert found == [], "count steps, use an event or a fake clock, or compare CPU seconds (tests/cpu_seconds.py)"
