"""Converts trajectories of other tools to rows of `steps.jsonl` (the format: `agentrl.graph.jsonl`).

For example:

    rows = from_messages([{"group": "task 3", "messages": [...], "reward": 1.0}, ...])
    Path("steps.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]


def from_messages(trajectories: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Steps of chat trajectories in OpenAI's format.

    A step is one assistant message. Its state is the text of the messages since the previous assistant message, without
    system messages. Its action is the text of the message, or its tool calls as `name(arguments)`, one per line. The
    next state of the last step is the text of the messages that follow it, if there are any.

    Args:
        trajectories: each with `messages` (objects with `role`, `content`, maybe `tool_calls`), `group` (copies of one
            task share it), and either `reward` (a number, for the last step) or `rewards` (one per assistant message);
            maybe `episode` (default: the trajectory's place in the list) and `truncated`.

    Raises:
        ValueError: a trajectory has no messages or group, no assistant message, or the wrong number of rewards.
    """
    rows: list[Row] = []
    for number, trajectory in enumerate(trajectories):
        for name in ("messages", "group"):
            if name not in trajectory:
                raise ValueError(f"trajectory {number}: {name}: missing, it has {sorted(trajectory)}")
        turns = _turns(trajectory["messages"])
        if not turns:
            raise ValueError(f"trajectory {number}: messages: there is no assistant message in it")
        rewards = trajectory.get("rewards", [0.0] * (len(turns) - 1) + [trajectory.get("reward")])
        if len(rewards) != len(turns) or rewards[-1] is None:
            raise ValueError(
                f"trajectory {number}: rewards: {len(turns)} assistant messages need `reward`, or as many `rewards`"
            )
        steps = [
            {
                "group": str(trajectory["group"]),
                "episode": str(trajectory.get("episode", number)),
                "turn": turn,
                "reward": float(reward),
                **{name: text for name, text in zip(("state", "action", "next_state"), texts, strict=True) if text},
            }
            for turn, (reward, texts) in enumerate(zip(rewards, turns, strict=True))
        ]
        steps[-1]["truncated" if trajectory.get("truncated") else "terminated"] = True
        rows += steps
    return rows


def _turns(messages: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """(state, action, next state) of each assistant message."""
    turns: list[tuple[str, str]] = []
    texts: list[str] = []  # of the messages since the previous assistant message
    for message in messages:
        if message["role"] == "assistant":
            turns.append(("\n".join(texts), _action(message)))
            texts = []
        elif message["role"] != "system":
            texts.append(_text(message.get("content")))
    following = [state for state, _ in turns[1:]] + ["\n".join(texts)] * bool(turns)
    return [(state, action, after) for (state, action), after in zip(turns, following, strict=True)]


def _text(content: Any) -> str:
    """The text of a message; if its content is a list of parts, the text parts."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part.get("type") == "text")
    return content or ""


def _action(message: Mapping[str, Any]) -> str:
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return "\n".join(f"{call['name']}({call['arguments']})" for call in calls) or _text(message.get("content"))


def from_verl(batch: Mapping[str, Sequence[Any]]) -> list[Row]:
    """Steps of a verl-style row batch: one row per step (prompt and response), in time order inside a trajectory.

    Args:
        batch: columns of one length R: `uid` (the group), `traj_uid` (the episode), and `token_level_rewards` [R, T]
            (a step's reward is the sum of its row) or `rewards` [R]. Optional: `anchor_obs` (the state, any value that
            `str` takes), `is_action_valid`, `active_masks` (inactive rows are left out, as verl-agent does),
            `response_mask` [R, T] (gives `n_tokens`), `values` [R, T] (with `response_mask`, gives `token_value`).

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
        rows.append({"group": str(batch["uid"][i]), "episode": episode, "turn": turn} | _verl_values(batch, i))
    return rows


def _verl_values(batch: Mapping[str, Sequence[Any]], i: int) -> Row:
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
