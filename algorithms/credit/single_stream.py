"""One rollout per prompt, compared with an estimate of the prompt's value that is kept over iterations.

Formula: `A = whiten(score - v)`, where v is the tracked value of the prompt.

Source: SPO (single-stream policy optimisation), arXiv:2509.13232, and its released recipe. The column `value` on an
episode's first row is the estimate *before* the scores of this batch are counted. `whiten` takes the mean and the
sample variance of score - value over all episodes of the batch that have the same agent: x becomes
(x - mean) / sqrt(variance + 1e-8). There are no groups. The called chains of a program have the estimate and the
advantage of their episode, which counts once. `Tracker` keeps the estimates outside of the credit function, which is
pure.

A training run keeps the tracker and fills `value` from it (`filler`). The paper's prioritised sampling is the sampler
`prioritised`. The paper computes the first estimates from offline samples: name a report of such samples in the option
`start`, both of the credit method and of the sampler.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from agentrl.credit import Credit, Options, PromptValues, where
from agentrl.files import read_json
from agentrl.graph import StepGraph, whiten
from agentrl.types import UNSCORED

PAPER = "SPO (single stream), arXiv:2509.13232"
READS = ("value",)


class Config(Options, frozen=True):
    """See the module.

    Attributes:
        whiten: bring the advantages of the batch's episodes to mean 0 and standard deviation 1; false takes
            score - value as the advantage.
        start: path of a report of `agentrl eval ENV --samples N --out FILE` on the training tasks, from which the first
            values are computed (the paper takes 8 samples). A task that is not in the report begins with the value 0.5.
            Empty: every task begins with 0.5.
        preset: has no effect on this method.
    """

    whiten: bool = True
    start: str = ""


def credit(graph: StepGraph, config: Config) -> Credit:
    """Every step of an episode gets the episode's advantage.

    Raises:
        ValueError: an episode's first row has no value.
    """
    value = graph.column("value")  # [N]
    first = np.flatnonzero(graph.first & graph.counted)  # [E]
    absent = first[np.isnan(value[first])]
    if len(absent):
        raise ValueError(f"{where(graph, int(absent[0]))}: value: single_stream needs it on an episode's first step")
    surprise = graph.score[first] - value[first]  # [E]
    if config.whiten:
        surprise = whiten(surprise, graph.weight[first], key=graph.agent[first])
    return Credit.of(surprise[np.searchsorted(first, graph.lead)])


class Tracker:
    """Counts of success and failure of each prompt; the more the policy changes, the faster old counts are forgotten.

    value = alpha / (alpha + beta); after an outcome r in 0..1: alpha <- rho alpha + r, beta <- rho beta + 1 - r with
    rho = clip(2^(-D / half_life), 0.875, 0.96), where D is the mean |change of log-probability| of the prompt's last
    answer.
    """

    def __init__(self, half_life: float = 0.06, low: float = 0.875, high: float = 0.96) -> None:
        self.half_life, self.low, self.high = half_life, low, high
        self._counts: dict[str, tuple[float, float]] = {}

    def start(self, prompt: str, outcomes: np.ndarray) -> None:
        """Set the counts from the outcomes of offline samples, [n] in 0..1.

        0.5 is added to each count; then both are scaled so that their sum is 1 / (1 - low).
        """
        alpha, beta = float(outcomes.sum()) + 0.5, float((1 - outcomes).sum()) + 0.5
        scale = 1 / (1 - self.low) / (alpha + beta)
        self._counts[prompt] = alpha * scale, beta * scale

    def value(self, prompt: str) -> float:
        """The estimate, 0.5 for a prompt never seen."""
        alpha, beta = self._counts.get(prompt, (0.5, 0.5))
        return alpha / (alpha + beta)

    def sampling_weight(self, prompt: str, floor: float = 0.05) -> float:
        """Weight of the prompt in sampling: the uncertainty of its value, plus a floor."""
        v = self.value(prompt)
        return float(np.sqrt(v * (1 - v))) + floor

    def update(self, prompt: str, outcome: float, policy_change: float) -> None:
        """One outcome in 0..1; `policy_change` is D in nats."""
        rho = min(max(2.0 ** (-policy_change / self.half_life), self.low), self.high)
        alpha, beta = self._counts.get(prompt, (0.5, 0.5))
        self._counts[prompt] = rho * alpha + outcome, rho * beta + 1 - outcome

    def state_dict(self) -> dict[str, tuple[float, float]]:
        """The counts, as a checkpoint stores them."""
        return dict(self._counts)

    def load_state_dict(self, counts: Mapping[str, tuple[float, float]]) -> None:
        """Restore the counts of a checkpoint."""
        self._counts = {prompt: (float(alpha), float(beta)) for prompt, (alpha, beta) in counts.items()}


def filler(config: Config) -> PromptValues:
    """What fills `value` and `policy_kl` in a training run, and keeps the counts from one iteration to the next."""
    return PromptValues(started(Tracker(), config.start, "credit.start"))


def started(tracker: Tracker, report: str, key: str) -> Tracker:
    """The tracker with the values of a report's outcomes; unchanged if `report` is empty.

    Args:
        tracker: a tracker without counts.
        report: path of a report of `agentrl eval --out`.
        key: name of the option that holds the path, for the error message.

    Raises:
        ValueError: the file is not a report of `agentrl eval --out`.
    """
    if not report:
        return tracker
    found = read_json(Path(report), f"report ({key})")
    rewards: dict[str, list[float]] = {}
    try:
        for one in found["outcomes"]:
            if one["ending"] not in UNSCORED:
                rewards.setdefault(one["task"], []).append(min(max(float(one["reward"]), 0.0), 1.0))
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"{key}: {report} is no report with the outcomes of tasks: write one with agentrl eval ENV --policy MODEL "
            "--samples 8 --out FILE"
        ) from None
    if not rewards:
        raise ValueError(f"{key}: {report} has no scored episode: evaluate the training tasks, then try again")
    for task, won in rewards.items():
        tracker.start(task, np.array(won))
    return tracker
