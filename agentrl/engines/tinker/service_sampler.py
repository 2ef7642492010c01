"""One snapshot of weights that a training service samples."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from agentrl.engines.tinker.sdk_calls import awaited, awaited_here, plain, raising
from agentrl.engines.tinker.service_data import Sampled, aligned, sampled
from agentrl.engines.tinker.service_errors import Doing

if TYPE_CHECKING:
    from agentrl.engines.tinker.sdk import Service

SAMPLE = Doing("a sample", "shorten the prompt, or lower engine.max_context", known=True)
SCORE = Doing("log-probs of a text", "shorten the text, or lower engine.max_context", known=True)


class ServiceSampler:
    """One snapshot of weights, which the service samples.

    Attributes:
        service: the connection.
        path: name of the weights for `Service.sampler`; empty if they have no lasting name.
        model: name of the base model that is sampled; empty for other weights.
    """

    def __init__(self, service: "Service", client: Any, path: str, model: str = "") -> None:
        self.service, self.path, self.model, self._client = service, path, model, client

    async def sample(
        self,
        ids: np.ndarray,
        *,
        limit: int,
        temperature: float,
        top_p: float,
        top_k: int,
        seed: int | None,
        stop: Sequence[str] | Sequence[int],
    ) -> Sampled:
        """One answer to a prompt.

        Args:
            ids: [n] int64, the prompt.
            limit: largest number of tokens of the answer.
            temperature, top_p, top_k: see `agentrl.engines.Sampling`.
            seed: the same seed gives the same answer, if the service promises this; None for any answer.
            stop: strings, or ids; not both. They end the answer, which includes them.

        Raises:
            ServiceError: the service refuses the request, or its answer has no log-probs.
            ServiceLost: the answer cannot be had any more.
        """
        assert len({type(one) is str for one in stop}) <= 1, "stop strings and stop ids cannot be mixed"
        types = self.service.tinker.types
        with raising(lambda error: self.service.failed(error, SAMPLE)):
            options = types.SamplingParams(
                max_tokens=limit, temperature=temperature, top_p=top_p, top_k=top_k or -1, seed=seed, stop=list(stop)
            )
            prompt = types.ModelInput.from_ints(ids.tolist())
            sent = plain(self._client.sample(prompt=prompt, num_samples=1, sampling_params=options))
            answer = await awaited_here(sent, self.service.timeout_s, partial(self.service.look, "engine"))
            return sampled(answer, self.service.url)

    def logprobs(self, paths: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The log-prob of every token of some texts, given the tokens before it.

        Args:
            paths: per text [n] int64.

        Returns:
            Per text [n] float64; the first is NaN.

        Raises:
            ServiceError: the service returns no log-probs of prompts, or the wrong number of them.
            ServiceLost: an answer cannot be had any more.
        """
        return [
            aligned(found, len(path), self.service.url)
            for path, found in zip(paths, self.prompt_logprobs(paths), strict=True)
        ]

    def prompt_logprobs(self, paths: Sequence[np.ndarray]) -> list[list[float | None] | None]:
        """What the service returns as the log-probs of the tokens of some texts, as it is; see `aligned`."""
        types = self.service.tinker.types
        with raising(lambda error: self.service.failed(error, SCORE)):
            waiting = [
                plain(self._client.compute_logprobs(types.ModelInput.from_ints(path.tolist()))) for path in paths
            ]
            look = partial(self.service.look, "update")
            return [awaited(future, self.service.timeout_s, look) for future in waiting]
