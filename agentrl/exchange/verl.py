"""Logs of verl as steps: batches of multi-turn agents, and the rollouts that `trainer.rollout_data_dir` stores."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from agentrl.exchange.log_groups import (
    disagreement,
    group_names,
    groups_without_advantage,
    id_columns,
    named_prompt,
    numbered,
)
from agentrl.exchange.log_rows import NamedColumns, Row, Rows, finite_number, single_step, with_columns
from agentrl.graph import keys

IDS = ("uid", "index", "request_id")  # columns that may hold ids of groups


def from_verl(batch: Mapping[str, Sequence[Any]]) -> list[Row]:
    """Steps of a batch as verl holds it: one row per step (prompt and response), in time order inside a trajectory.

    Args:
        batch: columns of one length R: `uid` (the group), `traj_uid` (the episode), and `token_level_rewards` [R, T]
            (a step's reward is the sum of its row) or `rewards` [R] (used if both are given). Optional: `anchor_obs`
            (the state, any value that `str` takes), `is_action_valid`, `active_masks` (inactive rows are left out, as
            verl-agent does), `response_mask` [R, T] (gives `n_tokens`), `values` [R, T] (with
            `response_mask`, gives `token_value`).

    Raises:
        ValueError: a needed column is missing, or columns differ in length.
    """
    for name in ("uid", "traj_uid"):
        if name not in batch:
            raise ValueError(f"a verl batch needs the column {name}: its columns are {sorted(batch)}")
    if "token_level_rewards" not in batch and "rewards" not in batch:
        raise ValueError("a verl batch needs token_level_rewards or rewards")
    size = len(batch["uid"])
    wrong = sorted(name for name, values in batch.items() if len(values) != size)
    if wrong:
        raise ValueError(f"columns {wrong} of the batch must have {size} rows, as uid has")
    rows: list[Row] = []
    turns: dict[str, int] = {}
    for i in range(size):
        if "active_masks" in batch and not batch["active_masks"][i]:
            continue
        episode = str(batch["traj_uid"][i])
        turn = turns[episode] = turns.get(episode, -1) + 1
        rows.append({"group": str(batch["uid"][i]), "episode": episode, "turn": turn} | _values(batch, i))
    return rows


def _values(batch: Mapping[str, Sequence[Any]], i: int) -> Row:
    """Reward and optional columns of row i."""
    if "rewards" in batch:
        reward = float(batch["rewards"][i])
    else:
        reward = float(sum(float(x) for x in batch["token_level_rewards"][i]))
    row: Row = {"reward": reward}
    if "anchor_obs" in batch:
        row["state"] = str(batch["anchor_obs"][i])
    if "is_action_valid" in batch:
        row["valid"] = bool(batch["is_action_valid"][i])
    if "response_mask" in batch:
        mask = [bool(m) for m in batch["response_mask"][i]]
        row["n_tokens"] = sum(mask)
        if "values" in batch:
            row["token_value"] = [float(v) for v, m in zip(batch["values"][i], mask, strict=True) if m]
    return row


def verl_columns(rows: Rows) -> list[Row]:
    """Steps of a file with one row of a verl batch per line."""
    names = list(rows[0])
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping) or set(row) != set(names):
            raise ValueError(f"row {number} of the batch has other columns than row 0, which has {sorted(names)}")
    try:
        return from_verl({name: [row[name] for row in rows] for name in names})
    except TypeError as error:
        raise ValueError(f"a column of the batch holds other values than verl writes: {error}") from None


def from_verl_rollouts(
    rollouts: Sequence[Mapping[str, Any]],
    rewards: Sequence[str] = (),
    group_by: str = "",
    notes: list[str] | None = None,
) -> list[Row]:
    """Steps of verl's stored rollouts (`trainer.rollout_data_dir`), one step per rollout.

    A `uid` of the form TASK_SESSION_OUTPUT, as verl's newer trainer writes it, names the group (TASK), the episode and
    the turn: the outputs of one session are one episode, and each holds the session's score.

    Args:
        rollouts: each with `input` (the prompt), `output` and `score`; maybe `step`, the number of verl's training
            step; maybe an id of its group: `uid`, `index` (the row of the data set) or a `request_id` that several
            rollouts share. Without an id, rollouts with equal prompts and equal `step` are a group.
        rewards: columns, `NAME` or `NAME=WEIGHT`, whose weighted sum is the reward; default: `score`.
        group_by: the column whose values are the ids of groups.
        notes: a list to which sentences about missing information are added.

    Raises:
        ValueError: a rollout lacks `input`, `output` or `score`, its score is no number, or the sign of the
            group-normalised score is not that of a column `advantage`.
    """
    with_columns("rollout", rollouts, ("input", "output", "score"))
    named = NamedColumns(rewards, group_by)
    named.check(rollouts)
    weights = named.weights() or {"score": 1.0}
    with_columns("rollout", rollouts, list(weights))
    reward = np.array(
        [
            sum(weight * finite_number(f"rollout {i}: {name}", one[name]) for name, weight in weights.items())
            for i, one in enumerate(rollouts)
        ]
    )  # [N]
    step = numbered([str(one.get("step")) for one in rollouts])  # [N]
    outputs = None if group_by else _outputs(rollouts, step)
    group = _groups(rollouts, step, group_by, notes) if outputs is None else outputs.group  # [N]
    names = group_names(group, [named_prompt(str(one["input"]), one.get("step")) for one in rollouts])
    _check_advantage(rollouts, reward, group)
    rows = [
        single_step(number, name, str(one["input"]), str(one["output"]), float(reward[number]))
        for number, (name, one) in enumerate(zip(names, rollouts, strict=True))
    ]
    return rows if outputs is None else _sessions(rows, outputs)


class SessionOutputs(NamedTuple):
    """What the uids TASK_SESSION_OUTPUT say: group [N], episode [N] (dense ids) and place in the episode [N]."""

    group: np.ndarray
    episode: np.ndarray
    place: np.ndarray


def _outputs(rollouts: Rows, step: np.ndarray) -> SessionOutputs | None:
    """The parts of the uids; None if not all uids have the form TASK_SESSION_OUTPUT, or two are equal in one step."""
    parts: list[tuple[str, str, str]] = []
    for one in rollouts:
        words = str(one.get("uid")).rsplit("_", 2)
        if len(words) < 3 or not (words[1].isdecimal() and words[2].isdecimal()):
            return None
        parts.append((words[0], words[1], words[2]))
    whole: list[Hashable] = [*zip(step.tolist(), parts, strict=True)]
    if len(set(whole)) < len(whole):
        return None
    group = keys(step, numbered([task for task, _, _ in parts]))  # [N]
    episode = numbered([*zip(group.tolist(), (session for _, session, _ in parts), strict=True)])  # [N]
    return SessionOutputs(group, episode, np.array([int(output) for _, _, output in parts], np.int64))


def _sessions(rows: Sequence[Row], outputs: SessionOutputs) -> list[Row]:
    """The rows with the outputs of one session as one episode, whose reward is that of its last output.

    If the outputs of a session have different scores, each step has its own reward.
    """
    found: list[Row] = []
    for number in np.unique(outputs.episode).tolist():
        members = np.flatnonzero(outputs.episode == number)
        steps = [rows[i] for i in members[np.argsort(outputs.place[members], kind="stable")]]
        one_score = len({step["reward"] for step in steps}) == 1
        for turn, step in enumerate(steps):
            last = turn == len(steps) - 1
            kept = {name: value for name, value in step.items() if last or name != "terminated"}
            reward = step["reward"] if last or not one_score else 0.0
            found.append(kept | {"group": steps[0]["group"], "episode": str(number), "turn": turn, "reward": reward})
    return found


def _groups(rollouts: Rows, step: np.ndarray, group_by: str, notes: list[str] | None) -> np.ndarray:
    """[N] int64, the group of each rollout."""
    if group_by:
        with_columns("rollout", rollouts, (group_by,))
        return keys(step, numbered([str(one[group_by]) for one in rollouts]))
    prompt = keys(step, numbered([str(one["input"]) for one in rollouts]))  # [N]
    ids = list(id_columns(rollouts, IDS, step, prompt))
    group, note = groups_without_advantage(step, prompt, ids, in_blocks=False)
    if note and notes is not None:
        notes.append(note)
    return group


def _check_advantage(rollouts: Rows, reward: np.ndarray, group: np.ndarray) -> None:
    """Raise ValueError if the rollouts have an advantage of their own with other signs."""
    values = [one.get("advantage") for one in rollouts]
    if any(value is None for value in values):
        return
    logged = np.array([finite_number(f"rollout {i}: advantage", value) for i, value in enumerate(values)])  # [N]
    wrong = disagreement(reward, group, logged)
    if wrong is not None:
        raise ValueError(
            f"rollout {wrong.row}: the normalised score is {wrong.computed:.4g} and the log's own advantage is "
            f"{wrong.logged:.4g}: name the column of ids of groups by --group-by COLUMN, or the rewards by --rewards "
            "NAME"
        )
