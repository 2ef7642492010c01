"""What an agent asks of other agents, and what it hears of them: see `agentrl.types.Errand`."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from agentrl.rollout.records import EpisodeRecord
from agentrl.types import Reply, Status


def session_below(session: int, number: int) -> int:
    """A session number of a called agent's chain, far from those of chains that were not called."""
    name = f"{session}/{number}".encode()
    return (1 << 61) | int.from_bytes(sha256(name).digest()[:7], "big")


def reply_of(chain: EpisodeRecord) -> Reply:
    """What a caller hears of a chain; nothing of what the environment spoilt but that it did."""
    if chain.ending == Status.ENV_ERROR or not chain.steps:
        return Reply("", chain.ending)
    last = chain.steps[-1]
    return reply_from(chain.ending, last.action, chain.score, last.info)


def reply_from(ending: Status, action: str, score: float, info: Mapping[str, Any]) -> Reply:
    """What a caller hears of a chain that was played: its end, its last action, the sum of its rewards, its last
    info."""
    said = info.get("answer", action)
    return Reply(said if isinstance(said, str) else action, ending, score, info)
