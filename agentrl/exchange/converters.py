"""Converts trajectories of other tools to rows of `steps.jsonl` (`agentrl.exchange.jsonl`), and back to messages.

A log that is read is a JSONL file or a Parquet table (extra `data`) with one of these forms:
  - steps (`agentrl.exchange.jsonl`): group, episode, turn, reward;
  - chat trajectories in OpenAI's format: messages, group, reward;
  - a verl batch: uid, traj_uid, rewards or token_level_rewards; verl's stored rollouts: input, output, score;
  - TRL's logged completions: prompt, completion, one column per reward.

For example:

    rows = from_messages([{"group": "task 3", "messages": [...], "reward": 1.0}, ...])
    Path("steps.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from agentrl.exchange.export import KINDS, word
from agentrl.exchange.jsonl import read_steps, steps_graph
from agentrl.files import read_jsonl
from agentrl.graph import DEMO, PLAYED, StepGraph
from agentrl.rows import read_rows
from agentrl.types import Status


def to_messages(graph: StepGraph) -> Iterator[dict[str, Any]]:
    """One object per episode that was played or demonstrated.

    `messages` holds one user message (the observation) and one assistant message (the answer) per step, from the root
    of the path on; the object of a branch repeats the steps before the branch. `group`, `episode` and `agent` are
    names, `reward` is the episode's score, `status` says how the episode ended, `kind` is played or demo.
    `agentrl.exchange.from_messages` and `agentrl credit --steps` read this form.

    System messages and the text of a chat template are left out: a graph holds them only as tokens, not as texts.

    Raises:
        ValueError: the graph has no texts of observations or answers.
    """
    for name in ("observation", "answer"):
        if name not in graph.texts:
            raise ValueError(f"the steps have no texts {name!r}: export graphs that a run of agentrl has stored")
    score, parent = graph.score, graph.parent.tolist()
    for last in np.flatnonzero(graph.last & np.isin(graph.kind, (PLAYED, DEMO))).tolist():
        rows, row = [], last
        while row >= 0:
            rows.append(row)
            row = parent[row]
        messages = [message for row in reversed(rows) for message in _turn(graph, row)]
        yield {
            "messages": messages,
            "group": word(graph, "group", int(graph.group[last])),
            "episode": word(graph, "episode", int(graph.episode[last])),
            "agent": word(graph, "agent", int(graph.agent[last])),
            "reward": float(score[last]),
            "status": Status(int(graph.ending[last])).name.lower(),
            "kind": KINDS[int(graph.kind[last])],
        }


def _turn(graph: StepGraph, row: int) -> list[dict[str, str]]:
    return [
        {"role": "user", "content": graph.texts["observation"][row]},
        {"role": "assistant", "content": graph.texts["answer"][row]},
    ]


Row = dict[str, Any]


def from_messages(trajectories: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Steps of chat trajectories in OpenAI's format.

    A step is one assistant message. Its state is the text of the messages since the previous assistant message, without
    system messages. Its action is the message's tool calls as `name(arguments)`, one per line; without tool calls, it
    is the message's text. The next state of the last step is the text of the messages that follow it, if there are any.

    Args:
        trajectories: each with `messages` (objects with `role`, `content`, maybe `tool_calls`), `group` (copies of one
            task share it), and either `reward` (a number, for the last step) or `rewards` (one per assistant message);
            maybe `episode` (default: the trajectory's place in the list) and `truncated`.

    Raises:
        ValueError: a trajectory has no messages or group, no assistant message, the wrong number of rewards, or a
            message that is not in OpenAI's format.
    """
    rows: list[Row] = []
    for number, trajectory in enumerate(trajectories):
        if not isinstance(trajectory, Mapping):
            raise ValueError(f"trajectory {number}: {trajectory!r:.80} is no object")
        for name in ("messages", "group"):
            if name not in trajectory:
                raise ValueError(f"trajectory {number}: {name}: missing, it has {sorted(trajectory)}")
        try:
            turns = _turns(_messages(trajectory["messages"]))
        except ValueError as error:
            raise ValueError(f"trajectory {number}: {error}") from None
        if not turns:
            raise ValueError(f"trajectory {number}: messages: there is no assistant message in it")
        rewards = trajectory.get("rewards", [0.0] * (len(turns) - 1) + [trajectory.get("reward")])
        if not isinstance(rewards, list) or len(rewards) != len(turns) or rewards[-1] is None:
            raise ValueError(
                f"trajectory {number}: rewards: {len(turns)} assistant messages need `reward`, or one number each"
            )
        steps = [
            {
                "group": str(trajectory["group"]),
                "episode": str(trajectory.get("episode", number)),
                "turn": turn,
                "reward": _number(f"trajectory {number}: rewards", reward),
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


def from_verl_rollouts(rollouts: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Steps of verl's stored rollouts (`trainer.rollout_data_dir`), one step per rollout.

    Args:
        rollouts: each with `input` (the prompt), `output` and `score`; maybe `step`, the number of verl's training
            step. Rollouts with equal prompts and equal `step` are a group.

    Raises:
        ValueError: a rollout lacks `input`, `output` or `score`, or its score is no number.
    """
    return [
        _single(number, one["input"], one["output"], _number(f"rollout {number}: score", one["score"]), one.get("step"))
        for number, one in enumerate(_with("rollout", rollouts, ("input", "output", "score")))
    ]


OF_TRL = ("mode", "step", "prompt", "completion", "advantage", "images", "image")  # columns that hold no reward


def from_trl(completions: Sequence[Mapping[str, Any]], rewards: Sequence[str] = ()) -> list[Row]:
    """Steps of TRL's logged completions (`log_completions=True`, completions_NNNNN.parquet).

    A completion that is a text is one step. In a completion that is a list of messages, each assistant message is one
    step. Completions with equal prompts and equal `step` (the number of TRL's training step) are a group.

    Args:
        completions: each with `prompt` and `completion` (text, or messages) and a column per reward function; maybe
            `step`.
        rewards: names of the columns whose sum is the reward. Default: all columns of numbers except TRL's own columns
            (`OF_TRL`); the sum equals TRL's reward if no reward weights are set. A null in a column means that the
            reward function did not apply to this completion, and adds nothing.

    Raises:
        ValueError: a completion has no prompt, no completion or no reward.
    """
    rows: list[Row] = []
    for number, one in enumerate(_with("completion", completions, ("prompt", "completion"))):
        names = rewards or [name for name, value in one.items() if name not in OF_TRL and _is_number(value)]
        if not names:
            raise ValueError(f"completion {number}: it has no column with a reward, its columns are {sorted(one)}")
        paid = [one.get(name) for name in names]
        reward = sum(_number(f"completion {number}: {n}", x) for n, x in zip(names, paid, strict=True) if x is not None)
        prompt, said = one["prompt"], one["completion"]
        if isinstance(said, str):
            rows.append(_single(number, _prompt_text(prompt), said, reward, one.get("step")))
            continue
        messages = [{"role": "user", "content": _prompt_text(prompt)}, *said] if isinstance(said, list) else said
        group = _group(_prompt_text(prompt), one.get("step"))
        try:
            rows += from_messages([{"group": group, "episode": number, "messages": messages, "reward": reward}])
        except ValueError as error:
            raise ValueError(f"completion {number}: {str(error).partition(': ')[2]}") from None
    return rows


def _single(number: int, prompt: Any, answer: Any, reward: float, step: Any) -> Row:
    """An episode of one step."""
    text = str(prompt)
    row: Row = {"group": _group(text, step), "episode": str(number), "turn": 0, "reward": reward}
    return row | {"state": text, "action": str(answer), "terminated": True}


def _group(prompt: str, step: Any) -> str:
    return prompt if step is None else f"step {step}: {prompt}"


def _prompt_text(prompt: Any) -> str:
    """The text of a prompt; for a list of messages, the texts of all except system messages, one per line."""
    if not isinstance(prompt, list):
        return str(prompt)
    return "\n".join(_text(message.get("content")) for message in _messages(prompt) if message["role"] != "system")


def _with(what: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    for number, row in enumerate(rows):
        for name in names:
            if not isinstance(row, Mapping) or row.get(name) is None:
                has = sorted(row) if isinstance(row, Mapping) else row
                raise ValueError(f"{what} {number}: {name}: missing, it has {has}")
    return rows


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(where: str, value: Any) -> float:
    if not _is_number(value) or not math.isfinite(value):
        raise ValueError(f"{where}: {value!r} is no finite number")
    return float(value)


def _messages(messages: Any) -> Sequence[Mapping[str, Any]]:
    """The same messages; ValueError if they are not in OpenAI's format."""
    if not isinstance(messages, Sequence) or isinstance(messages, str):
        raise ValueError(f"messages: {messages!r:.80} is no list of messages")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise ValueError(f"messages: {message!r:.80} is no message: it needs a role and a content")
        content = message.get("content")
        if not isinstance(content, str | list | None):
            raise ValueError(f"messages: the content {content!r:.80} is neither text nor a list of parts")
        if isinstance(content, list) and not all(isinstance(part, Mapping) for part in content):
            raise ValueError(f"messages: the content {content!r:.80} has a part that is no object")
        for call in message.get("tool_calls") or ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if not isinstance(function, Mapping) or not {"name", "arguments"} <= set(function):
                raise ValueError(f"messages: the tool call {call!r:.80} has no function with a name and arguments")
    return messages


Rows = Sequence[Mapping[str, Any]]


def read_log(path: Path) -> StepGraph:
    """The step graph of a file of steps, or of another tool's log.

    Raises:
        ValueError: the file has none of the module's forms; the message names the line, the row or the file.
    """
    rows = _parquet(path) if path.suffix == ".parquet" else None
    convert = _converter(_first(path) if rows is None else next(iter(rows), {}))
    if convert is None:
        if rows is None:
            return read_steps(path)
        return steps_graph([json.dumps(row) for row in rows], str(path))
    if rows is None:
        rows = [row for _, row in read_jsonl(path, "log")]
    try:
        steps = convert(rows)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return steps_graph([json.dumps(step) for step in steps], str(path))


def _converter(row: Any) -> Callable[[Rows], list[dict[str, Any]]] | None:
    """The function that turns rows of this form into steps; None if the rows are steps or have an unknown form."""
    keys = set(row) if isinstance(row, Mapping) else set()
    if "messages" in keys:
        return from_messages
    if {"uid", "traj_uid"} <= keys:
        return _verl_columns
    if {"input", "output", "score"} <= keys:
        return from_verl_rollouts
    return from_trl if {"prompt", "completion"} <= keys else None


def _verl_columns(rows: Rows) -> list[dict[str, Any]]:
    names = list(rows[0])
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping) or set(row) != set(names):
            raise ValueError(f"row {number} of the batch has other columns than row 0, which has {sorted(names)}")
    try:
        return from_verl({name: [row[name] for row in rows] for name in names})
    except TypeError as error:
        raise ValueError(f"a column of the batch holds other values than verl writes: {error}") from None


def _first(path: Path) -> Any:
    """The first value of a JSONL file; None if the file cannot be read, so that `read_steps` raises the error."""
    try:
        return next((value for _, value in read_jsonl(path, "file of steps")), None)
    except (ValueError, OSError):
        return None


def _parquet(path: Path) -> Rows:
    if not path.is_file():
        raise ValueError(f"no such file of steps: {path}")
    return list(read_rows(path))
