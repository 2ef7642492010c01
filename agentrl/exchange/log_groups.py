"""Which rows of another tool's log are copies of one task, and a check of them against the log's own advantage.

Letters: N rows of the log, one per completion.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from math import gcd
from typing import Any, NamedTuple

import numpy as np

from agentrl.graph import keys, mean, moments

STD_EPS = 1e-4  # TRL adds it to the standard deviation
CLOSE = 2e-3  # relative to the largest advantage: logs are float32, and people round to four digits
ZERO = 1e-4  # smaller than this share of the largest advantage counts as 0
MAX_BLOCK_SIZES = 64  # sizes of groups that are tried per training step


class AgreeingGroups(NamedTuple):
    """Groups of a log's rows: `group` [N] int64; `distance`, how far the advantages are from those of the log.

    `distance` is 0 if the groups and rewards reproduce the log's advantage.
    """

    group: np.ndarray
    distance: float


class SignMismatch(NamedTuple):
    """The first row whose group-normalised reward and the log's own advantage have different signs."""

    row: int
    computed: float
    logged: float


def numbered(values: Sequence[Hashable]) -> np.ndarray:
    """[N] int64, dense ids of the values in the order of first appearance."""
    ids: dict[Hashable, int] = {}
    return np.array([ids.setdefault(value, len(ids)) for value in values], np.int64)


def id_columns(
    rows: Sequence[Mapping[str, Any]], names: Sequence[str], step: np.ndarray, prompt: np.ndarray
) -> Iterator[np.ndarray]:
    """For each column of ids of groups, the group of each row, [N] int64.

    A column of this name is no id of groups if a row lacks it, if its rows with one value differ in the prompt, or if
    every row has its own value although prompts repeat.

    Args:
        rows: N rows of the log.
        names: names that a column of ids may have.
        step, prompt: [N] int64, ids of the training step and of the whole prompt.
    """
    repeats = len(np.unique(keys(step, prompt))) < len(rows)
    for name in names:
        values = [row.get(name) for row in rows]
        if any(value is None or isinstance(value, list | dict) for value in values):
            continue
        group = keys(step, numbered([str(value) for value in values]))  # [N]
        of_group = len(np.unique(keys(group, prompt)))  # pairs of a group and a prompt in it
        groups = len(np.unique(group))
        if of_group == groups and not (repeats and groups == len(rows)):
            yield group


def blocks(prompt: np.ndarray) -> Iterator[np.ndarray]:
    """[N] int64 groups of equal size, the largest first: TRL writes the copies of a task as one block of rows.

    Args:
        prompt: [N] int64, ids of the prompts of one training step.
    """
    ends = np.flatnonzero(np.diff(prompt)) + 1  # first rows of runs of equal prompts, without row 0
    runs = np.diff(np.concatenate([[0], ends, [len(prompt)]]))
    largest = gcd(*runs.tolist())
    sizes = [size for size in range(largest, 1, -1) if largest % size == 0]
    for size in sizes[:MAX_BLOCK_SIZES]:
        yield np.arange(len(prompt)) // size


def advantage_of(reward: np.ndarray, group: np.ndarray) -> np.ndarray:
    """[N] float64, (reward - mean) / (std + 1e-4) in each group, as TRL computes it; 0 for a reward that is NaN."""
    scored = ~np.isnan(reward)  # [N]
    found = moments(np.where(scored, reward, 0.0), group, weight=scored.astype(float), std="sample")
    centred = np.where(scored & ~found.constant, reward - found.mean, 0.0)  # [N]
    advantage: np.ndarray = centred / (found.std + STD_EPS)
    return advantage


def disagreement(reward: np.ndarray, group: np.ndarray, logged: np.ndarray) -> SignMismatch | None:
    """The first row at which reward and log disagree in sign; a number and 0 disagree too. All arrays are [N]."""
    computed = advantage_of(reward, group)  # [N]
    floor = ZERO * max(float(np.abs(logged).max(initial=0.0)), ZERO)
    sign = np.where(np.abs(computed) > ZERO, np.sign(computed), 0)  # [N]
    logged_sign = np.where(np.abs(logged) > floor, np.sign(logged), 0)  # [N]
    # Beside the bound for 0, rounding decides which side a number is on.
    doubtful = (np.abs(computed) < 10 * ZERO) & (np.abs(logged) < 10 * floor)  # [N]
    wrong = np.flatnonzero((sign != logged_sign) & ~doubtful)
    return SignMismatch(int(wrong[0]), float(computed[wrong[0]]), float(logged[wrong[0]])) if len(wrong) else None


def distance(reward: np.ndarray, group: np.ndarray, logged: np.ndarray) -> float:
    """The largest difference from the logged advantage, relative to its largest size.

    0 if all are close to the centred reward, divided by the standard deviation of the group, by that of the batch, or
    by nothing (`scale_rewards` of TRL). `CLOSE` if all are close to one of these times one factor, as in RLOO. All
    arrays are [N].
    """
    by_group = advantage_of(reward, group)  # [N]
    scored = ~np.isnan(reward)  # [N]
    centre = mean(np.where(scored, reward, 0.0), group, weight=scored.astype(float))  # [N] NaN without scored rows
    centred = np.where(scored, reward - centre, 0.0)  # [N]
    batch = float(np.std(reward[scored], ddof=1)) if scored.sum() > 1 else 0.0
    size = max(float(np.abs(logged).max(initial=0.0)), 1e-6)

    def furthest(computed: np.ndarray) -> float:
        return float(np.abs(computed - logged).max(initial=0.0)) / size

    if min(map(furthest, (by_group, centred, centred / (batch + STD_EPS)))) <= CLOSE:
        return 0.0
    scaled = (x * max(float(x @ logged), 0.0) / max(float(x @ x), 1e-12) for x in (by_group, centred))
    return max(CLOSE, min(map(furthest, scaled)))


def best_groups(
    reward: np.ndarray,
    step: np.ndarray,
    prompt: np.ndarray,
    logged: np.ndarray,
    ids: Sequence[np.ndarray],
    *,
    in_blocks: bool = True,
) -> AgreeingGroups | SignMismatch:
    """The groups that agree best with the logged advantage, chosen per training step.

    Tried in this order: the columns of ids, equal prompts, blocks of rows of one size. Of several that reproduce the
    advantage, the first is taken; if none reproduces it, the nearest whose signs agree.

    Args:
        reward, logged: [N] float64; a reward may be NaN for a completion that has none.
        step, prompt: [N] int64.
        ids: groups by columns of ids, each [N] int64.
        in_blocks: try blocks of rows, too.

    Returns:
        A `SignMismatch` if no groups agree in sign on some step. It is that of the first groups that were tried.
    """
    chosen = np.zeros(len(reward), np.int64)  # [N]
    furthest = 0.0
    for number in np.unique(step).tolist():
        rows = np.flatnonzero(step == number)
        tried = [*(group[rows] for group in ids), prompt[rows], *(blocks(prompt[rows]) if in_blocks else ())]
        found: AgreeingGroups | None = None
        for group in tried:
            apart = distance(reward[rows], group, logged[rows])
            signs_agree = not apart or disagreement(reward[rows], group, logged[rows]) is None
            if signs_agree and (found is None or apart < found.distance):
                found = AgreeingGroups(group, apart)
            if found is not None and not found.distance:
                break
        if found is None:
            wrong = disagreement(reward[rows], tried[0], logged[rows])
            assert wrong is not None, "groups without a disagreement were not taken"
            return wrong._replace(row=int(rows[wrong.row]))
        chosen[rows] = found.group
        furthest = max(furthest, found.distance)
    return AgreeingGroups(keys(step, chosen), furthest)


def groups_without_advantage(
    step: np.ndarray, prompt: np.ndarray, ids: Sequence[np.ndarray], in_blocks: bool
) -> tuple[np.ndarray, str]:
    """(groups [N] of a log that has no advantage, a note for the reader or an empty text).

    The first column of ids decides. Without ids, equal prompts of one training step are a group. If some prompts of a
    step have more copies than others, two tasks may have one prompt: `in_blocks` (every group is a block of rows of
    one size, as TRL writes) divides them, otherwise the note says so.
    """
    if ids:
        return ids[0], ""
    group = keys(step, prompt)  # [N]
    uneven = [number for number in np.unique(step).tolist() if len(set(_copies(prompt[step == number]))) > 1]
    if not uneven:
        return group, ""
    if in_blocks:
        divided = prompt.copy()  # [N]
        for number in uneven:
            rows = np.flatnonzero(step == number)
            divided[rows] = next(blocks(prompt[rows]), prompt[rows])
        return keys(step, divided, prompt), "some prompts have more rows than others: each block of rows is a group"
    return group, (
        "some prompts have more rows than others in one training step: if two tasks have one prompt, they are "
        "one group here; name a column of ids by --group-by COLUMN"
    )


def _copies(prompt: np.ndarray) -> list[int]:
    counts: list[int] = np.unique(prompt, return_counts=True)[1].tolist()
    return counts


def named_prompt(prompt: str, step: Any) -> str:
    """The name of a group: its prompt and, if the log has it, its training step."""
    return prompt if step is None else f"step {step}: {prompt}"


def group_names(group: np.ndarray, texts: Sequence[str]) -> list[str]:
    """[N] names of groups: the text of the group's first row, with a number if several groups have one text."""
    names: dict[int, str] = {}
    used: dict[str, int] = {}
    for number, text in zip(group.tolist(), texts, strict=True):
        if number not in names:
            count = used[text] = used.get(text, 0) + 1
            names[number] = text if count == 1 else f"{text} ({count})"
    return [names[number] for number in group.tolist()]
