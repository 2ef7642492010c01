"""Every credit method as a plain dictionary implementation, written only to be timed and compared with.

Rows are dictionaries in episode order, as a released trainer's batch would be; each function returns one
advantage per row. Defaults are those of the catalogue's methods.
"""

from collections import defaultdict, deque
from math import exp, sqrt
from typing import Any

Row = dict[str, Any]


def groups(rows: list[Row], *names: str) -> list[list[int]]:
    """Indices of rows that agree in `names`."""
    found: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        found[tuple(row[name] for name in names)].append(i)
    return list(found.values())


def normal(values: list[float], std: str = "sample", eps: float = 1e-6) -> list[float]:
    """Normalised values of one group; a group of one value, or of equal values, gets 0."""
    n = len(values)
    if n < 2 or max(values) - min(values) < 1e-12:
        return [0.0] * n
    mean = sum(values) / n
    if std == "none":
        return [v - mean for v in values]
    sigma = sqrt(sum((v - mean) ** 2 for v in values) / (n - 1 if std == "sample" else n))
    return [(v - mean) / (sigma + eps) for v in values]


def spread(rows: list[Row], members: list[list[int]], values: list[float], **how: Any) -> list[float]:
    """`normal` inside each group of indices."""
    out = [0.0] * len(rows)
    for own in members:
        for i, a in zip(own, normal([values[i] for i in own], **how), strict=True):
            out[i] = a
    return out


def scores(rows: list[Row]) -> list[float]:
    """For each row the sum of its episode's rewards."""
    total: dict[int, float] = defaultdict(float)
    for row in rows:
        total[row["episode"]] += row["reward"]
    return [total[row["episode"]] for row in rows]


def episodes(rows: list[Row], key: str = "group", unit: str = "episode", **how: Any) -> list[float]:
    """For each row the normalised score of its episode within the group (GRPO's advantage)."""
    score, out = scores(rows), [0.0] * len(rows)
    for own in groups(rows, key):
        counted = [i for i in own if rows[i]["turn"] == 0] if unit == "episode" else own
        fate = dict(zip((rows[i]["episode"] for i in counted), normal([score[i] for i in counted], **how), strict=True))
        for i in own:
            out[i] = fate[rows[i]["episode"]]
    return out


def returns(rows: list[Row], values: list[float], decay: list[float]) -> list[float]:
    """y_t = x_t + decay_t y_{t+1} inside each episode."""
    out, carry = [0.0] * len(rows), 0.0
    for i in range(len(rows) - 1, -1, -1):
        if i + 1 == len(rows) or rows[i + 1]["turn"] == 0:
            carry = 0.0
        carry = out[i] = values[i] + decay[i] * carry
    return out


def discounted(rows: list[Row], gamma: float) -> list[float]:
    return returns(rows, [row["reward"] for row in rows], [gamma] * len(rows))


def after(rows: list[Row], name: str) -> list[float]:
    """The next row's value, 0 at an episode's end."""
    return [row[name] if row["turn"] else 0.0 for row in rows[1:]] + [0.0]


def plus(*terms: list[float]) -> list[float]:
    return [sum(values) for values in zip(*terms, strict=True)]


def grpo(rows: list[Row]) -> list[float]:
    return episodes(rows)


def rloo(rows: list[Row]) -> list[float]:
    n = {rows[own[0]]["group"]: sum(rows[i]["turn"] == 0 for i in own) for own in groups(rows, "group")}
    plain = episodes(rows, std="none")
    return [a * n[r["group"]] / max(n[r["group"]] - 1, 1) for a, r in zip(plain, rows, strict=True)]


def gigpo(rows: list[Row]) -> list[float]:
    return plus(episodes(rows), spread(rows, groups(rows, "group", "state"), discounted(rows, 0.95)))


def hgpo(rows: list[Row]) -> list[float]:
    gain, levels = discounted(rows, 0.95), [[] for _ in rows]
    for k in (1, 2, 3):
        found = defaultdict(list)
        for i, row in enumerate(rows):
            if row["turn"] >= k - 1:
                found[row["group"], tuple(rows[j]["state"] for j in range(i - k + 1, i + 1))].append(i)
        for own in found.values():
            for i, a in zip(own, normal([gain[i] for i in own], std="population"), strict=True):
                if abs(a) > 1e-12:
                    levels[i].append((k + 1, a))
    return [sum(w * a for w, a in own) / sum(w for w, _ in own) if own else 0.0 for own in levels]


def graph_gpo(rows: list[Row]) -> list[float]:
    score, gain = scores(rows), [0.0] * len(rows)
    for own in groups(rows, "group"):
        back, ends = defaultdict(list), {}
        for i in own:
            last = i + 1 == len(rows) or rows[i + 1]["turn"] == 0
            ends[i] = ("won" if score[i] > 0 else ("lost", i)) if last else rows[i + 1]["state"]
            back[ends[i]].append(rows[i]["state"])
        far, queue = {"won": 0}, deque(["won"])
        while queue:
            node = queue.popleft()
            for before in back[node]:
                if before not in far:
                    far[before] = far[node] + 1
                    queue.append(before)
        limit = max(far.values()) + 1
        for i in own:
            gain[i] = 10 * 0.1 ** far.get(ends[i], limit)
    return plus(episodes(rows, unit="step"), spread(rows, groups(rows, "group", "state"), gain))


def salt(rows: list[Row]) -> list[float]:
    base, score, found = episodes(rows), scores(rows), defaultdict(list)
    for i, row in enumerate(rows):
        last = i + 1 == len(rows) or rows[i + 1]["turn"] == 0
        end = score[i] > 0 if last else rows[i + 1]["state"]
        found[row["group"], row["state"], row["action"], last, end].append(i)
    out = [0.0] * len(rows)
    for own in found.values():
        mean = sum(base[i] for i in own) / len(own)
        for i in own:
            out[i] = mean
    return out


def tree_grpo(rows: list[Row]) -> list[float]:
    return plus(episodes(rows), episodes(rows, key="tree"))


def turn_ppo(rows: list[Row]) -> list[float]:
    delta = [r["reward"] + 0.99 * v - r["value"] for r, v in zip(rows, after(rows, "value"), strict=True)]
    return returns(rows, delta, [0.99 * 0.9] * len(rows))


def hiper(rows: list[Row]) -> list[float]:
    low, high, starts = after(rows, "value"), after(rows, "value_high"), after(rows, "segment_start")
    beyond = [h if s else v for v, h, s in zip(low, high, starts, strict=True)]
    delta = [r["reward"] + 0.95 * v - r["value"] for r, v in zip(rows, beyond, strict=True)]
    return returns(rows, delta, [0.0 if s else 0.95 * 0.95 for s in starts])


def poad(rows: list[Row]) -> list[float]:
    out, carry, beyond = [0.0] * len(rows), 0.0, 0.0
    for i in range(len(rows) - 1, -1, -1):
        if i + 1 == len(rows) or rows[i + 1]["turn"] == 0:
            carry = beyond = 0.0
        values, total = rows[i]["token_value"], 0.0
        for j in range(len(values) - 1, -1, -1):
            last = j + 1 == len(values)
            delta = (rows[i]["reward"] + 0.95 * beyond if last else values[j + 1]) - values[j]
            carry = delta + (0.95 * 0.95 if last else 0.95) * carry
            total += carry
        beyond, out[i] = values[0], total / len(values)
    return out


def token_gae(rows: list[Row]) -> list[float]:
    out, carry, beyond = [0.0] * len(rows), 0.0, 0.0
    for i in range(len(rows) - 1, -1, -1):
        if i + 1 == len(rows) or rows[i + 1]["turn"] == 0:
            carry = beyond = 0.0
        values, total = rows[i]["token_value"], 0.0
        for j in range(len(values) - 1, -1, -1):
            carry += (rows[i]["reward"] if j + 1 == len(values) else 0.0) + beyond - values[j]
            beyond = values[j]
            total += carry
        out[i] = total / len(values)
    return out


def bilevel_gae(rows: list[Row]) -> list[float]:
    out, carry, beyond = [0.0] * len(rows), 0.0, 0.0
    for i in range(len(rows) - 1, -1, -1):
        if i + 1 == len(rows) or rows[i + 1]["turn"] == 0:
            carry = beyond = 0.0
        values = rows[i]["token_value"]
        carry = rows[i]["reward"] + 0.99 * beyond - values[-1] + 0.99 * carry
        beyond, inner, ahead, total = values[-1], 0.0, 0.0, 0.0
        for j in range(len(values) - 1, -1, -1):
            inner += (carry + values[-1] if j + 1 == len(values) else 0.0) + ahead - values[j]
            ahead = values[j]
            total += inner
        out[i] = total / len(values)
    return out


def m_grpo(rows: list[Row]) -> list[float]:
    return episodes(rows, std="population")


def role_grpo(rows: list[Row]) -> list[float]:
    return spread(rows, groups(rows, "group", "turn", "agent"), [row["reward"] for row in rows])


def turn_returns(rows: list[Row]) -> list[float]:
    return spread(rows, groups(rows, "group"), discounted(rows, 0.9))


def info_gain(rows: list[Row]) -> list[float]:
    gain = []
    for i, row in enumerate(rows):
        last = i + 1 == len(rows) or rows[i + 1]["turn"] == 0
        before = row["gold_logprob_start"] if row["turn"] == 0 else rows[i - 1]["gold_logprob"]
        gain.append(row["reward"] if last else exp(row["gold_logprob"]) - exp(before))
    return returns(rows, spread(rows, groups(rows, "group"), gain), [1.0] * len(rows))


def vine_ppo(rows: list[Row]) -> list[float]:
    return [r["reward"] + v - r["value"] for r, v in zip(rows, after(rows, "value"), strict=True)]


def segment_tree(rows: list[Row]) -> list[float]:
    value = [0.0] * len(rows)
    for i in range(len(rows) - 1, -1, -1):
        last = i + 1 == len(rows) or rows[i + 1]["turn"] == 0
        value[i] = rows[i]["reward"] if last else value[i + 1]
    roots = [[i for i in own if rows[i]["turn"] == 0] for own in groups(rows, "group", "tree")]
    return spread(rows, roots, value, std="none")


def single_stream(rows: list[Row]) -> list[float]:
    score = scores(rows)
    surprise = {r["episode"]: score[i] - r["value"] for i, r in enumerate(rows) if r["turn"] == 0}
    mean = sum(surprise.values()) / len(surprise)
    variance = sum((x - mean) ** 2 for x in surprise.values()) / (len(surprise) - 1)
    return [(surprise[row["episode"]] - mean) / sqrt(variance + 1e-8) for row in rows]


def multi_conversation(rows: list[Row]) -> list[float]:
    return episodes(rows, std="none")


def tl_grpo(rows: list[Row]) -> list[float]:
    turn = spread(rows, groups(rows, "group", "state"), [row["reward"] for row in rows], std="population")
    return plus(turn, [0.5 * a for a in episodes(rows, std="population")])


def graft(rows: list[Row]) -> list[float]:
    score, node = scores(rows), [(row["group"], row["state"]) for row in rows]
    end = [i + 1 == len(rows) or rows[i + 1]["turn"] == 0 for i in range(len(rows))]
    there = [("end", row["group"], score[i]) if end[i] else node[i + 1] for i, row in enumerate(rows)]
    out: dict[Any, list[int]] = defaultdict(list)
    for i, u in enumerate(node):
        out[u].append(i)
    value = dict.fromkeys(node, 0.0) | {there[i]: score[i] for i in range(len(rows)) if end[i]}
    settle(out, there, value, lambda i: 0.0, 0.99)
    delta = [0.99 * value[v] - value[u] for u, v in zip(node, there, strict=True)]
    delta = [d if abs(d) > 1e-8 else 0.0 for d in delta]
    normed = spread(rows, list(out.values()), delta, std="population")
    return [(d > 0) - (d < 0) if len(out[u]) == 1 else n for d, n, u in zip(delta, normed, node, strict=True)]


def settle(out: dict[Any, list[int]], there: list[Any], value: dict[Any, float], gain: Any, gamma: float) -> None:
    """Sweep over `value` in place until no value changes by more than 1e-10 (Jacobi, as the catalogue's methods do)."""
    moved = 1.0
    while moved > 1e-10:
        new = {u: sum(gain(i) + gamma * value[there[i]] for i in own) / len(own) for u, own in out.items()}
        moved = max(abs(new[u] - value[u]) for u in new)
        value.update(new)
