"""How a policy draws an answer from a model: the settings of the sampling distribution, and its noise.

The trainer and the engines that play its rollouts use the same sampling distribution, softmax(logits / temperature)
restricted to an allowed set (`agentrl.engines.distribution` computes it). Admissible actions, top-k and top-p all
become the allowed set of a token. The set is stored with the token (`Generation.allowed`), so the trainer can compute
the token's log-probability under the same distribution again.

In the embedded engine the noise of a token depends only on (noise key, token index), and the token is the value of the
inverse CDF at this noise. With equal logits the same key therefore draws the same token, whatever else is in the batch.
vLLM servers and endpoints get a seed that is computed from the noise key (endpoints only with endpoint.seeded=true).
"""

from pydantic import BaseModel, ConfigDict, Field

from agentrl.env import Prompt, stops


class Sampling(BaseModel):
    """Section [sampling]: the sampling distribution and the limits of an answer.

    Attributes:
        temperature: divides the logits; 0 is greedy. The log-probability of a greedy token is computed at temperature 1
            among the tokens that `engine.actions` allows, because at temperature 0 it would always be 0. top_k and
            top_p do not apply to greedy tokens.
        top_p: the allowed set is the smallest set of most probable tokens whose probabilities have a sum of at least
            top_p; 1 is off.
        top_k: the allowed set is the k most probable tokens; 0 is off. It is applied before top_p, which then uses the
            probabilities within the top k. If several tokens have the probability of the k-th token, the embedded
            engine takes those with the lowest ids, and a vLLM server allows all of them.
        stop: stop strings. An answer ends as soon as its text contains one of them, and its text and ids include the
            stop string. If `stop` is empty, the environment's stop strings apply (`</search>` and `</answer>` for a
            search agent).
        max_tokens: largest number of tokens per answer; a request may ask for fewer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float = Field(1.0, ge=0, allow_inf_nan=False)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    stop: tuple[str, ...] = ()
    max_tokens: int = Field(512, ge=1)

    @property
    def truncates(self) -> bool:
        """Does top-k or top-p exclude tokens?"""
        return self.temperature > 0 and (self.top_k > 0 or self.top_p < 1)


def stopping(sampling: Sampling, *prompts: Prompt) -> Sampling:
    """The sampling settings, with the stop strings of the environments' prompts if the settings name none."""
    strings = dict.fromkeys(stop for prompt in prompts for stop in stops(prompt))
    return sampling if sampling.stop else sampling.model_copy(update={"stop": tuple(strings)})
