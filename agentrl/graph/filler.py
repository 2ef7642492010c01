"""What fills columns between rollout and credit, where a model or a memory is needed.

A catalogue file (a credit method, a context policy) that needs such columns offers `filler(config) -> Filler`. A filler
sees the graph and the policy that produced it, and may keep state from one iteration to the next: one with
`state_dict` and `load_state_dict` is kept in the run's checkpoints. It is NumPy only; the policy's log-probabilities
are asked for through `PolicyReader`.
"""

from typing import Any, Protocol

import numpy as np

from agentrl.graph.step_graph import Columns, StepGraph
from agentrl.graph.tokens import Tokens


class PolicyReader(Protocol):
    """The policy of the steps, as a filler may use it."""

    @property
    def tokenizer(self) -> Any:
        """The policy's transformers tokenizer."""
        ...

    def encode(self, text: str) -> np.ndarray:
        """[T] int64 ids of a text; control tokens spelled out in it become ordinary text."""
        ...

    def logprobs(self, tokens: Tokens, rows: np.ndarray, *, temperature: float | None = None) -> np.ndarray:
        """[S] float64 nats, log-probabilities of the sampled tokens of `rows` under the policy as it is now; NaN
        elsewhere. temperature: None takes that of the sampling."""
        ...


class Filler(Protocol):
    """Fills columns of a graph."""

    @property
    def fills(self) -> tuple[str, ...]:
        """Names of the columns."""
        ...

    def columns(self, graph: StepGraph, policy: PolicyReader) -> Columns:
        """The columns by name: those of steps [N], those of tokens [S]."""
        ...
