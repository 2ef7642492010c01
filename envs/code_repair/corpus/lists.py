"""Programs on lists and tables."""

# mypy: ignore-errors
# ruff: noqa: B905, PERF401  written as people write them, so that there is something to get wrong


def merge_sorted(one, other):
    """Two ascending lists as one."""
    merged = []
    i = j = 0
    while i < len(one) and j < len(other):
        if one[i] <= other[j]:
            merged.append(one[i])
            i += 1
        else:
            merged.append(other[j])
            j += 1
    return merged + one[i:] + other[j:]


def binary_search(values, wanted):
    """The first position of a value in an ascending list, or -1."""
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    if low < len(values) and values[low] == wanted:
        return low
    return -1


def moving_average(values, window):
    """Means of every `window` neighbours, rounded down to whole numbers."""
    if window <= 0 or window > len(values):
        return []
    total = sum(values[:window])
    means = [total // window]
    for i in range(window, len(values)):
        total += values[i] - values[i - window]
        means.append(total // window)
    return means


def best_sum(values):
    """The largest sum of neighbours, of at least one of them."""
    best = current = values[0]
    for value in values[1:]:
        current = max(value, current + value)
        best = max(best, current)
    return best


def rotate(values, steps):
    """The list moved right by some steps, around its end."""
    if not values:
        return []
    steps = steps % len(values)
    return values[len(values) - steps :] + values[: len(values) - steps]


def transpose(table):
    """Rows and columns exchanged; short rows are filled with None."""
    width = 0
    for row in table:
        width = max(width, len(row))
    columns = []
    for i in range(width):
        columns.append([row[i] if i < len(row) else None for row in table])
    return columns


def chunks(values, size):
    """Pieces of at most `size` neighbours."""
    pieces = []
    for start in range(0, len(values), size):
        pieces.append(values[start : start + size])
    return pieces


def merge_intervals(intervals):
    """Overlapping or touching intervals as one each, ascending."""
    merged = []
    for start, end in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def median(values):
    """The middle value, or the mean of the two middle ones."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def spiral(table):
    """The entries of a table from its upper left corner inwards, clockwise."""
    result = []
    rows = [list(row) for row in table]
    while rows:
        result += rows.pop(0)
        rows = [list(row) for row in zip(*rows)][::-1]
    return result


def longest_rise(values):
    """The length of the longest strictly rising run of neighbours."""
    best = length = 0
    previous = None
    for value in values:
        length = length + 1 if previous is not None and value > previous else 1
        best = max(best, length)
        previous = value
    return best


def group_by_length(words):
    """Words by their length, in a dict whose keys ascend; words in order, each once."""
    groups = {}
    for word in words:
        group = groups.setdefault(len(word), [])
        if word not in group:
            group.append(word)
    return {length: groups[length] for length in sorted(groups)}


def flatten(nested, depth):
    """A nested list with up to `depth` levels of brackets removed."""
    flat = []
    for value in nested:
        if isinstance(value, list) and depth > 0:
            flat += flatten(value, depth - 1)
        else:
            flat.append(value)
    return flat
