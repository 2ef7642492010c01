"""A teacher that reads what the policy sampled: on-policy distillation, by the regularizer `teacher`.

Formula: `x = log pi - log pi_teacher` of each sampled token, which the regularizer `teacher` computes.

The policy plays without help. The teacher then computes the log-prob of each token that the policy sampled, under the
same allowed set and temperature (column `teacher_logprob`). `update.regularizers = [{name = "teacher"}]` turns the
column into a reverse KL per token. The option `source` says who the teacher is:

    folder    a model in a folder or of the hub (`path`) with the tokenizer of the policy
    endpoint  a server (`url`, `model`) that returns the log-probs of a prompt of token ids: it answers POST
              URL/completions with echo and logprobs as vLLM does. Its log-probs are over all tokens at temperature 1.
              Therefore the recipe must have `engine.actions = "free"`, `sampling.temperature = 1`, and top_k and top_p
              off
    own       the policy itself, with its weights at the beginning of the update (SDPO). Its prompt also shows the
              actions of a successful chain of the same task. It teaches the chains that failed

Source: KDRL, arXiv:2506.02208, and Thinking Machines, "On-Policy Distillation" (2025), for a teacher model; SDPO,
arXiv:2601.20802, for `own`. SDPO's loss is KL(pi(. | x) || stopgrad pi(. | x, f)), where f is a successful rollout of
the task. Departures from SDPO: the KL is estimated from the sampled tokens and not computed from whole distributions; f
is the shortest success so far, which may come from an earlier batch; and the teacher gets no textual feedback.

Formula: teacher_logprob_t = log pi_teacher(y_t | x, y_<t), and with `own` log pi(y_t | x, f, y_<t).

Limits: `own` makes the prompts of chains again. This works only for one agent, for rollout methods that play whole
chains, and for a learner in one process.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field, model_validator

from agentrl.rollout import Draw, EpisodeRecord, Teaching, by_group, lost

PAPER = "KDRL, arXiv:2506.02208; SDPO, arXiv:2601.20802"
SOURCES = {"folder": ("path",), "endpoint": ("url", "model"), "own": ()}


class Config(BaseModel, frozen=True, extra="forbid"):
    """See the module.

    Attributes:
        source: where the teacher is: a model folder (folder), a server (endpoint), or the policy itself with a success
            in its prompt (own).
        path: folder or hub name of the teacher's model, for source=folder.
        dtype: number type of the teacher's weights, for source=folder; auto is bfloat16 on CUDA and float32 on the CPU.
        device: where the teacher computes, for source=folder; auto is CUDA if torch finds a CUDA device.
        url: address of the endpoint, with /v1 at its end.
        model: the teacher's name at the endpoint.
        api_key: key of the endpoint; "${NAME}" takes it from the environment variable NAME.
        concurrency: largest number of requests to the endpoint at the same time.
        timeout_s: time limit in seconds of a request to the endpoint.
        heading: the line before the actions of a success, for source=own.
        keep: largest number of tasks whose successes are stored, for source=own; the tasks that were stored first are
            dropped first.
    """

    source: Literal["own", "folder", "endpoint"] = "own"
    path: str = ""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: str = "auto"
    url: str = ""
    model: str = ""
    api_key: str = ""
    concurrency: int = Field(8, ge=1)
    timeout_s: float = Field(120.0, gt=0)
    heading: str = "Solution:"
    keep: int = Field(10_000, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> "Config":
        for name in ("path", "url", "model"):
            wanted = name in SOURCES[self.source]
            if wanted != bool(getattr(self, name)):
                what = f"needs {name}" if wanted else f"has no {name}"
                raise ValueError(
                    f"source={self.source!r} {what}: of path, url and model give "
                    f"{' and '.join(SOURCES[self.source]) or 'none'}"
                )
        return self


class Teacher:
    """See the module.

    Attributes:
        solutions: key of a task -> the actions of its shortest success, for `own`.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.solutions: dict[str, list[str]] = {}

    def begin(self, draws: Sequence[Draw]) -> list[Draw]:
        """The draws as they are: rollouts have no help."""
        return list(draws)

    def observe(self, records: Sequence[EpisodeRecord]) -> None:
        """Keep the shortest success of each task, for `own`."""
        if self.config.source != "own":
            return
        for own in by_group(records).values():
            for record in own:
                if record.success:
                    actions = [step.action for step in record.steps if not step.rewrites]
                    before = self.solutions.get(record.task.key)
                    if before is None or len(actions) < len(before):
                        self.solutions[record.task.key] = actions
        for key in [*self.solutions][: max(0, len(self.solutions) - self.config.keep)]:
            del self.solutions[key]

    def told(self, record: EpisodeRecord) -> str:
        """The actions of a success, for the prompts that the policy reads as its own teacher; empty for a chain that it
        does not teach."""
        actions = self.solutions.get(record.task.key)
        if not actions or record.success or lost(record):
            return ""
        return "\n".join([self.config.heading, *actions])

    def state_dict(self) -> dict[str, Any]:
        """The solutions, as a checkpoint stores them."""
        return {"solutions": {key: list(actions) for key, actions in self.solutions.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the solutions of a checkpoint."""
        self.solutions = {key: [str(action) for action in actions] for key, actions in state["solutions"].items()}


def make(config: Config, seed: int) -> Teacher:
    """See `agentrl.rollout.guide`; nothing is drawn at random."""
    return Teacher(config)


def teaches(config: Config) -> Teaching:
    """The model that computes the column `teacher_logprob`."""
    options = {name: getattr(config, name) for name in Teaching._fields}
    return Teaching(**options)


def words(config: Config) -> list[str]:
    """The texts whose words a new tokenizer must know, so that the policy can read a success."""
    return [config.heading] if config.source == "own" else []
