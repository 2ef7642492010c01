"""Calls between agents: the sessions of called agents, and their replies; see `agentrl.types.AgentCall`."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from agentrl.rollout.records import EpisodeRecord
from agentrl.types import AgentReply, Status


def session_below(session: int, number: int) -> int:
    """The session number of the chain that is played for call `number` of the chain with session `session`.

    The session number is 2^61 or more, so it differs from the numbers of chains that no agent called.
    """
    name = f"{session}/{number}".encode()
    return (1 << 61) | int.from_bytes(sha256(name).digest()[:7], "big")


def reply_of(chain: EpisodeRecord) -> AgentReply:
    """The reply of a played chain to its caller.

    If the environment failed, or the chain has no step, the reply holds an empty answer and the ending.
    """
    if chain.ending == Status.ENV_ERROR or not chain.steps:
        return AgentReply("", chain.ending)
    last = chain.steps[-1]
    return reply_from(chain.ending, last.action, chain.score, last.info)


def reply_from(ending: Status, action: str, score: float, info: Mapping[str, Any]) -> AgentReply:
    """The reply made of the ending, the last action, the score and the last info of a played chain.

    Args:
        ending: how the chain ended.
        action: the chain's last action. It is the text of the reply if `info` has no text `answer`.
        score: sum of the chain's rewards.
        info: the info of the chain's last step.
    """
    answer = info.get("answer", action)
    return AgentReply(answer if isinstance(answer, str) else action, ending, score, info)
