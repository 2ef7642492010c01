"""Execution accuracy written a second time, slowly: every order of columns, every pairing of rows."""

import itertools


def equal_cells(a, b) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b or abs(a - b) <= max(1e-6 * max(abs(a), abs(b)), 1e-9)
    return type(a) is type(b) and a == b


def equal_rows(a, b) -> bool:
    return len(a) == len(b) and all(equal_cells(x, y) for x, y in zip(a, b, strict=True))


def slow_same(gold, given, ordered: bool) -> bool:
    """Some order of the given columns makes the rows equal: in their order, or in some order of the rows."""
    if len(gold) != len(given):
        return False
    if not gold:
        return True
    if len(gold[0]) != len(given[0]):
        return False
    for columns in itertools.permutations(range(len(gold[0]))):
        moved = [tuple(row[i] for i in columns) for row in given]
        orders = [moved] if ordered else itertools.permutations(moved)
        if any(all(map(equal_rows, gold, rows)) for rows in orders):
            return True
    return False
