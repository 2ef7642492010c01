"""A training service as a policy: token ids in, token ids and log-probs out, one snapshot of weights per version."""

import asyncio
from functools import partial
from typing import Any

import numpy as np

from agentrl.engines.hf.answer import Answer, Words
from agentrl.engines.policy import AnswerCounts, Wordless
from agentrl.engines.sampling import Sampling
from agentrl.engines.tinker.sdk_calls import outside
from agentrl.engines.tinker.service_data import Sampled
from agentrl.engines.tinker.service_errors import AnswerLost, ServiceError, ServiceLost
from agentrl.types import EnvFault, Generation, Request

FREE = np.zeros(0, np.int64)
FREE.flags.writeable = False
SEEDS = 2**31  # a seed is below this number, as the servers take it


class SampleLost(EnvFault):
    """The service failed at one answer. The rollout starts the task again, at most `limits.retries` times."""


class TinkerEngine(Wordless):
    """See the module. It implements `agentrl.engines.Policy`.

    The service gets the end ids or, if there are stop strings, these strings alone, because it takes no mixture. The
    answer is cut after its first end id in both cases.

    Args:
        sampler: a `ServiceSampler` of the weights.
        tokenizer: tokenizer of the served model.
        sampling: the sampling distribution.
        end_ids: token ids that end an answer.
        max_context: largest number of tokens of prompt and answer together.
        trains: the answers are trained, so each must be sampled at temperature 1.
        version: version of the weights.
        owned: the `Service` that `close` closes; None if it is not this engine's own.
    """

    name = "tinker"

    def __init__(
        self,
        sampler: Any,
        tokenizer: Any,
        sampling: Sampling,
        *,
        end_ids: frozenset[int],
        max_context: int,
        trains: bool = False,
        version: int = 0,
        owned: Any = None,
    ) -> None:
        self.sampler, self.tokenizer, self.sampling, self.version = sampler, tokenizer, sampling, version
        self.end_ids, self.max_context, self.stats = sorted(end_ids), max_context, AnswerCounts()
        self._trains, self._owned = trains, owned
        self._words = Words(tokenizer, sampling.stop, end_ids)
        self._special = frozenset(getattr(tokenizer, "all_special_ids", ())) | end_ids

    def describe(self) -> dict[str, object]:
        """Description of the policy for reports. Services do not promise that a seed repeats an answer."""
        weights = self.sampler.path or self.sampler.model
        return {
            "engine": self.name,
            "where": self.sampler.service.url,
            **({"weights": weights} if weights else {}),
            "sampling": self.sampling.model_dump(),
            "actions": "free",
            "deterministic": False,
            "max_context": self.max_context,
        }

    def load(self, weights: Any, version: int) -> None:
        """Generate with these weights from now on. Requests that were sent before are finished with the earlier ones.

        Args:
            weights: `agentrl.model.ServedWeights`.
            version: version of the weights.
        """
        self.sampler, self.version = sampler_of(weights), version

    async def generate(self, request: Request) -> Generation:
        """See Policy. If the prompt fills the context, the answer has no token and finish "length".

        Raises:
            ServiceError: the service refuses the request, or its answer cannot be used.
            ServiceLost: the service gives no answer, or has lost the weights.
            SampleLost: the service failed at this answer alone.
        """
        if self._trains and request.temperature not in (None, 1.0):
            raise ServiceError(
                f"the rollouts ask for temperature {request.temperature:g}, and a training service computes the "
                "log-probs of training at temperature 1: remove the temperature of the sampler of tasks"
            )
        answer = Answer(request, self._words, self.sampling, None, self.max_context)
        sampler, version = self.sampler, self.version  # of this answer, whatever is loaded meanwhile
        if answer.finish is None:
            try:
                found = await sampler.sample(
                    answer.tokens[: answer.length],
                    limit=answer.limit,
                    temperature=self.sampling.temperature if request.temperature is None else request.temperature,
                    top_p=self.sampling.top_p,
                    top_k=self.sampling.top_k,
                    seed=(answer.key >> 1) % SEEDS,
                    stop=self.sampling.stop or self.end_ids,
                )
            except AnswerLost as error:
                raise SampleLost(str(error)) from None
            self._fill(answer, found, sampler.service.url)
        self.stats.add(prompt=answer.start, drawn=answer.drawn, forced=0)
        answer.oldest = version
        return answer.generation(version)

    def close(self) -> None:
        """Close the connection that was made for this engine."""
        if self._owned is not None:
            self._owned.close()

    def _fill(self, answer: Answer, found: Sampled, url: str) -> None:
        """Put the service's tokens into the answer, up to the first end.

        Raises:
            ServiceError: the service ended the answer, and the answer has no end, which could then not be trained.
        """
        for token, logprob in zip(found.tokens.tolist(), found.logprobs.tolist(), strict=True):
            answer.accept(token, logprob, FREE)
            if answer.finish is not None:
                return
        if found.finish == "length":  # the service's own limit
            answer.finish = "length"
        elif answer.drawn and int(answer.tokens[answer.length - 1]) in self._special:
            answer.finish = "stop"  # at an end token that only the service knows
        else:
            raise ServiceError(
                f"the training service at {url} ended an answer of {answer.drawn} tokens without an end token or a "
                "stop string in it, so it leaves them out and answers cannot be trained: choose another service"
            )


def stored_sampler(service: Any, config: Any) -> Any:
    """A sampler of the weights that a configuration names; see `Config.checkpoint`.

    Raises:
        ServiceError, ServiceLost: the service has neither of the two.
    """
    if not config.checkpoint:
        return service.sampler(model=config.model, path=config.path)
    try:
        found = service.sampler(path=config.path)
        once = {"limit": 1, "temperature": 1.0, "top_p": 1.0, "top_k": 0, "seed": 0, "stop": ()}
        look = partial(service.look, "engine")
        outside(lambda: asyncio.run(found.sample(np.ones(1, np.int64), **once)), config.timeout_s, look)
    except (ServiceError, ServiceLost):
        return service.resume(config.checkpoint, optimiser=False).sampler()
    return found


def sampler_of(weights: Any) -> Any:
    """The sampler in `agentrl.model.ServedWeights`.

    Raises:
        ValueError: the weights are in this process or in a folder.
    """
    sampler = getattr(weights, "sampler", None)
    if sampler is None:
        raise ValueError(
            "engine.name=tinker samples weights that a training service holds, and these weights are here: set "
            "learner.name=tinker, or engine.name=hf"
        )
    return sampler
