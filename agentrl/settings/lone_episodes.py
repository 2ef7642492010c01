"""Says what a credit method learns if each task is played once, so that no episode has another one to be compared with.

The method computes the credit of small step graphs of one episode per group. In the first graph no state occurs twice.
In the second graph each episode comes back to its first state.
"""

import numpy as np

from agentrl.config import Entry
from agentrl.credit import CreditMethod, assign
from agentrl.graph import StepGraph
from agentrl.rollout import RolloutMethod
from agentrl.types import Status

SCORES = (0.0, 1.0, 0.25, 2.0)  # one episode each; no two are equal, so every comparison of episodes gives a number
TURNS = 3


def lone_note(credit: Entry[CreditMethod], rollout: Entry[RolloutMethod], copies: int) -> str:
    """A note if the credit of a method is 0 because each task is played once; else empty. `copies`: `batch.copies`."""
    if rollout.hooks.leaves(rollout.config, copies) != 1 or not silent(credit, returning=False):
        return ""
    which = f"batch.copies = {copies}: credit.name={credit.name} compares the episodes of a task, and each task has one"
    if silent(credit, returning=True):
        return f"{which}, so every advantage is 0 and nothing is learned from rewards: raise batch.copies, such as to 8"
    return f"{which}, so only steps of one episode in the same state are compared: raise batch.copies, such as to 8"


def silent(credit: Entry[CreditMethod], *, returning: bool) -> bool:
    """Is the advantage of every step of the small graph 0? False for a method that cannot read the graph.

    Args:
        credit: the method.
        returning: the episodes come back to their first state.
    """
    try:
        found = assign(credit, lone_episodes(returning=returning))
    except Exception:  # noqa: BLE001  the method may be a user's, and may need columns that only a run has
        return False
    advantages = [found.advantage, *([] if found.token_advantage is None else [found.token_advantage])]
    return not any(np.any(one) for one in advantages)


def lone_episodes(*, returning: bool) -> StepGraph:
    """A step graph of one episode of TURNS turns per group; see `silent`."""
    episodes = len(SCORES)
    n = episodes * TURNS
    row = np.arange(n)  # [N]
    turn, episode = row % TURNS, row // TURNS  # [N], [N]
    last = turn == TURNS - 1  # [N]
    state = np.where((turn == 1) & returning, row - 1, row)  # [N]
    whole = {
        "group": episode,
        "rollout": episode,
        "episode": episode,
        "turn": turn,
        "parent": np.where(turn == 0, -1, row - 1),
        "tree": episode,
        "state": state,
        "action": row,
        "next_state": np.where(last, row + n, np.append(state[1:], 0)),
        "caller": np.full(n, -1),
    }  # each [N]
    nothing = {
        name: np.zeros(n, np.int64)
        for name in ("kind", "agent", "policy", "status", "version_oldest", "version_newest")
    }  # each [N]
    return StepGraph(
        columns={
            **{name: column.astype(np.int64) for name, column in {**whole, **nothing}.items()},
            "kind": nothing["kind"].astype(np.int8),
            "status": np.full(n, Status.OK, np.int8),
            "ending": np.where(last, Status.DONE, 0).astype(np.int8),
            "reward": np.where(last, np.repeat(SCORES, TURNS), 0.0),
            "terminated": last,
            "truncated": np.zeros(n, np.bool_),
            "valid": np.ones(n, np.bool_),
            "weight": np.ones(n),
        }
    )
