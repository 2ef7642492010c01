"""What an agent asks of other agents, and what it hears of them: see `agentrl.types.Errand`."""

from hashlib import sha256

from agentrl.records import EpisodeRecord
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
    said = last.info.get("answer", last.action)
    return Reply(said if isinstance(said, str) else last.action, chain.ending, chain.score, last.info)
