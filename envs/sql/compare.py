"""Are two results of queries the same? Execution accuracy.

There are two rules. `rows` compares multisets of rows. The order of the rows counts only if the right query orders
them, and the order of the columns never counts. This is the rule of test-suite accuracy (Zhong, Yu and Klein, "Semantic
Evaluation for Text-to-SQL with Distilled Test Suites", arXiv:2010.02840). `bird` compares sets of rows, with the
columns in the order of the right query (Li et al., "Can LLM Already Serve as A Database Interface?", arXiv:2305.03111).
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from agentrl.envs.sql.guarded import Cell

RELATIVE, ABSOLUTE = 1e-6, 1e-9  # floats with a smaller difference count as equal
MOST_ORDERS = 5000  # largest number of orders of columns that are tried
MOST_PAIRED = 500  # largest number of rows that differ only in their numbers and are paired one by one
Row = tuple[Cell, ...]


def same_result(gold: Sequence[Row], given: Sequence[Row], *, ordered: bool) -> bool:
    """Do two results hold the same rows?

    Args:
        gold: rows of the right query.
        given: rows of the agent's query.
        ordered: the right query orders its rows.
    """
    if len(gold) != len(given):
        return False
    if not gold:
        return True
    if len(gold[0]) != len(given[0]):
        return False
    same = _same_list if ordered else _same_bag
    for tried, order in enumerate(_orders(gold, given)):
        if tried == MOST_ORDERS:
            return False
        if same(gold, [tuple(row[i] for i in order) for row in given]):
            return True
    return False


def same_set(gold: Sequence[Row], given: Sequence[Row]) -> bool:
    """BIRD's own rule: sets of rows, nothing rounded."""
    return set(gold) == set(given)


def _orders(gold: Sequence[Row], given: Sequence[Row]) -> Iterator[tuple[int, ...]]:
    """Orders of the given columns in which each column has the values of the right query's column at its place.

    If the columns as they are given are such an order, it comes first.
    """
    width = len(gold[0])
    columns = [[(row[i],) for row in given] for i in range(width)]
    fits = [[i for i in range(width) if _same_bag([(row[j],) for row in gold], columns[i])] for j in range(width)]

    def rest(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(chosen) == width:
            yield chosen
            return
        here = len(chosen)
        for i in sorted(fits[here], key=lambda i: i != here):
            if i not in chosen:
                yield from rest((*chosen, i))

    return rest(())


def _same_list(gold: Sequence[Row], given: Sequence[Row]) -> bool:
    return all(_same_row(a, b) for a, b in zip(gold, given, strict=True))


def _same_bag(gold: Sequence[Row], given: Sequence[Row]) -> bool:
    """Do both hold the same rows, each equally often? Rows that differ only in numbers are paired by their numbers."""
    if Counter(map(_exact, gold)) == Counter(map(_exact, given)):
        return True
    ours, theirs = _by_exact_cells(gold), _by_exact_cells(given)
    return ours.keys() == theirs.keys() and all(_paired(ours[key], theirs[key]) for key in ours)


def _paired(gold: list[Row], given: list[Row]) -> bool:
    if len(gold) != len(given):
        return False
    if all(_same_row(a, b) for a, b in zip(sorted(gold, key=_numbers), sorted(given, key=_numbers), strict=True)):
        return True
    if len(gold) > MOST_PAIRED:
        return False
    left = list(given)
    for row in gold:
        found = next((i for i, other in enumerate(left) if _same_row(row, other)), None)
        if found is None:
            return False
        left.pop(found)
    return True


def _by_exact_cells(rows: Sequence[Row]) -> dict[Row, list[Row]]:
    """Rows by the cells that must be equal exactly; numbers, which may be floats on one side alone, are left out."""
    grouped: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[tuple(0 if isinstance(cell, int | float) else cell for cell in row)].append(row)
    return grouped


def _exact(row: Row) -> tuple[tuple[bool, Cell], ...]:
    return tuple((isinstance(cell, int | float), cell) for cell in row)


def _numbers(row: Row) -> tuple[float, ...]:
    return tuple(float(cell) for cell in row if isinstance(cell, int | float))


def _same_row(gold: Row, given: Row) -> bool:
    return all(_same_cell(a, b) for a, b in zip(gold, given, strict=True))


def _same_cell(gold: Cell, given: Cell) -> bool:
    if isinstance(gold, int) and isinstance(given, int):
        return gold == given
    if isinstance(gold, int | float) and isinstance(given, int | float):
        return math.isclose(gold, given, rel_tol=RELATIVE, abs_tol=ABSOLUTE)
    return type(gold) is type(given) and gold == given
