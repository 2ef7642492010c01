"""Does an answer agree with the majority of its group? A reward without labels.

Formula: `signal_i = 1 if answer_i is the most frequent answer of the group, else 0`.

Source: TTRL, arXiv:2504.16084, section 2.2, Eq. 1: the answer that most copies give is the pseudo-label, and a copy is
paid 1 if it gives that answer. If several answers are the most frequent, `tie=none` (ours) pays no copy, and
`tie=first` takes the answer of the earliest copy among these answers, as the released code does. `agreement_share` says
how certain the label is: it is the share of the copies that give the most frequent answer, among all copies with and
without an answer. The label can be wrong: then a mistake that most copies share is paid. Watch the success rate, too.

Compared with the released code (verl/utils/reward_score/ttrl/ttt_metrics.py). Departures: in the released code an
absent answer counts as an answer and may be the majority; here it never is. In the released code a verifier of
mathematics decides whether an answer equals the label; here the texts must be equal in lower case. In the released code
more answers vote for the label than are trained; here the copies that vote are the copies that are trained.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from agentrl.chat import first_tagged
from agentrl.scoring import Chain, JudgeClient, ScoreOptions, Signals
from agentrl.tool import action as tool_action

SCOPE = "group"
PAPER = "arXiv:2504.16084"


class Config(ScoreOptions, frozen=True):
    """Options.

    Attributes:
        signal: name of the signal; the share of the copies that give the most frequent answer is the signal
            SIGNAL_share.
        tie: what happens if several answers are the most frequent: no copy is paid (none), or the majority is the one
            that the first copy with such an answer gave (first).
        min_share: smallest share of the copies that must give the most frequent answer; below it no copy is paid.
    """

    signal: str = "agreement"
    tie: Literal["none", "first"] = "none"
    min_share: float = 0.0


def signals(config: Config) -> Sequence[str]:
    """The agreement of each chain, and the share of its group's majority."""
    return [config.signal, f"{config.signal}_share"]


class Agreement:
    """Scores the copies of a task by their agreement; it calls no model."""

    def __init__(self, config: Config) -> None:
        self.config = config

    async def score(self, chains: Sequence[Chain], client: JudgeClient) -> Sequence[Signals]:
        """See `Scorer`."""
        answers = [final_answer(chain.turns[-1].action) for chain in chains]
        paid, share = majority(answers, tie=self.config.tie, min_share=self.config.min_share)
        return [{self.config.signal: one, f"{self.config.signal}_share": share} for one in paid]


def make(config: Config) -> Agreement:
    """See `agentrl.scoring.entry`."""
    return Agreement(config)


def majority(answers: Sequence[str], *, tie: str = "none", min_share: float = 0.0) -> tuple[list[float], float]:
    """(1 for each answer that is paid and 0 for each other, the share of the most frequent answer among all copies).

    Args:
        answers: the answers of the copies of one task; an empty text means no answer, and is never the majority.
        tie, min_share: see `Config`.
    """
    counts = Counter(answer for answer in answers if answer)
    if not counts:
        return [0.0] * len(answers), 0.0
    best = max(counts.values())
    winners = [answer for answer, count in counts.items() if count == best]
    share = best / len(answers)
    if share < min_share or (tie == "none" and len(winners) > 1):
        return [0.0] * len(answers), share
    return [float(answer == winners[0]) for answer in answers], share


def final_answer(action: str) -> str:
    """The answer in a chain's last action, in lower case and with single blanks; empty if the action is no answer.

    The answer is the content of `<answer>`, or the final answer of a tool environment. An action that searches or calls
    a tool is no answer. Any other text is an answer as a whole.
    """
    found = first_tagged(action, ["answer", "search"])
    if found is not None:
        return "" if found.tag == "search" else _plain(found.content)
    turn = tool_action.read(action)
    return "" if turn.items else _plain(turn.answer or "")


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
