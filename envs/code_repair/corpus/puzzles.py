"""Programs that simulate or search."""

# mypy: ignore-errors
# ruff: noqa: C420  written as people write them, so that there is something to get wrong


def shortest_path(walls, width, height):
    """Steps from the upper left to the lower right cell around walls, or -1."""
    if (0, 0) in walls or (width - 1, height - 1) in walls:
        return -1
    queue = [(0, 0, 0)]
    seen = {(0, 0)}
    while queue:
        x, y, steps = queue.pop(0)
        if x == width - 1 and y == height - 1:
            return steps
        for dx, dy in ((1, 0), (0, 1), (-1, 0), (0, -1)):
            cell = (x + dx, y + dy)
            inside = 0 <= cell[0] < width and 0 <= cell[1] < height
            if inside and cell not in walls and cell not in seen:
                seen.add(cell)
                queue.append((cell[0], cell[1], steps + 1))
    return -1


def evaluate(expression):
    """The value of a text in reverse Polish notation."""
    stack = []
    for token in expression.split():
        if token in ("+", "-", "*"):
            right = stack.pop()
            left = stack.pop()
            if token == "+":
                stack.append(left + right)
            elif token == "-":
                stack.append(left - right)
            else:
                stack.append(left * right)
        else:
            stack.append(int(token))
    return stack.pop()


def life(cells, steps):
    """Conway's game on an endless grid: the living cells after some steps, sorted."""
    alive = set(cells)
    for _ in range(steps):
        counts = {}
        for x, y in alive:
            for dx in (-1, 0, 1):
                for dy in (-1, 0, 1):
                    if dx or dy:
                        cell = (x + dx, y + dy)
                        counts[cell] = counts.get(cell, 0) + 1
        alive = {cell for cell, n in counts.items() if n == 3 or (n == 2 and cell in alive)}
    return sorted(alive)


def topological(edges):
    """Tasks in an order in which every edge (before, after) holds, alphabetical where free; [] if there is none."""
    nodes = sorted({node for edge in edges for node in edge})
    waiting = {node: 0 for node in nodes}
    for _, after in edges:
        waiting[after] += 1
    order = []
    free = [node for node in nodes if waiting[node] == 0]
    while free:
        node = min(free)
        free.remove(node)
        order.append(node)
        for before, after in edges:
            if before == node:
                waiting[after] -= 1
                if waiting[after] == 0:
                    free.append(after)
    return order if len(order) == len(nodes) else []


def robot(commands):
    """Where a robot ends that starts at (0, 0) looking north: F goes forward, L and R turn."""
    x = y = 0
    direction = 0
    moves = [(0, 1), (1, 0), (0, -1), (-1, 0)]
    for command in commands:
        if command == "L":
            direction = (direction - 1) % 4
        elif command == "R":
            direction = (direction + 1) % 4
        elif command == "F":
            x += moves[direction][0]
            y += moves[direction][1]
    return (x, y)


def knapsack(items, capacity):
    """The largest value of items (weight, value), each once, of at most `capacity` weight."""
    best = [0] * (capacity + 1)
    for weight, value in items:
        for room in range(capacity, weight - 1, -1):
            best[room] = max(best[room], best[room - weight] + value)
    return best[capacity]


def bowling(rolls):
    """The score of a game of ten frames, all rolls given."""
    score = 0
    position = 0
    for _ in range(10):
        if rolls[position] == 10:
            score += 10 + rolls[position + 1] + rolls[position + 2]
            position += 1
        elif rolls[position] + rolls[position + 1] == 10:
            score += 10 + rolls[position + 2]
            position += 2
        else:
            score += rolls[position] + rolls[position + 1]
            position += 2
    return score


def schedule(meetings):
    """How many meetings (start, end) one person can attend, none overlapping; ends may touch starts."""
    count = 0
    free_from = None
    for start, end in sorted(meetings, key=lambda meeting: meeting[1]):
        if free_from is None or start >= free_from:
            count += 1
            free_from = end
    return count


def queue_times(customers, desks):
    """When the last customer is served: each goes to the desk that is free first."""
    if desks <= 0:
        return -1
    busy = [0] * desks
    for minutes in customers:
        first = busy.index(min(busy))
        busy[first] += minutes
    return max(busy)


def islands(grid):
    """How many groups of neighbouring "#" (not across corners) a grid of text lines has."""
    left = {(r, c) for r, line in enumerate(grid) for c, mark in enumerate(line) if mark == "#"}
    count = 0
    while left:
        count += 1
        waiting = [left.pop()]
        while waiting:
            row, column = waiting.pop()
            for cell in ((row + 1, column), (row - 1, column), (row, column + 1), (row, column - 1)):
                if cell in left:
                    left.remove(cell)
                    waiting.append(cell)
    return count
