"""How an answer is drawn from a model: the settings of the sampling distribution, and its noise.

The trainer and the engines that play its rollouts use the same sampling distribution (`agentrl.engines.distribution`
has the arithmetic): softmax(logits / temperature) restricted to an allowed set.
Admissible actions, top-k and top-p all become the allowed set of a token, and the set is stored with the token
(`Generation.allowed`), so log-probabilities can be recomputed exactly.

In the embedded engine the noise of a token depends only on (noise key, token index), and the token is the value of the
inverse CDF at this noise. With equal logits the same key therefore draws the same token, whatever else is in the batch.
vLLM servers and endpoints get a seed that is computed from the noise key (endpoints only with endpoint.seeded=true).
"""

from pydantic import BaseModel, ConfigDict, Field

from agentrl.env import Prompt, stops


class Sampling(BaseModel):
    """Section [sampling]: the sampling distribution and the limits of an answer.

    Attributes:
        temperature: divides the logits; 0 is greedy. The log-probability of a greedy token is that at temperature 1
            among the tokens that `engine.actions` allows, because at temperature 0 it would always be 0. top_k and
            top_p do not apply to greedy tokens.
        top_p: the allowed set is the smallest set of most probable tokens whose mass reaches top_p; 1 is off.
        top_k: the allowed set is the k most probable tokens; 0 is off. It is applied before top_p, which then counts
            mass within the top k. Of tokens with the same probability, those with the lower ids come first.
        stop: stop strings: an answer ends as soon as its text contains one. Text and ids include the stop string. If
            `stop` is empty, the environment's stop strings apply (`</search>` and `</answer>` for a search agent).
        max_tokens: largest number of tokens per answer; a request may ask for fewer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float = Field(1.0, ge=0)
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
