"""A teacher that reads what the policy sampled: on-policy distillation, by the regularizer of the same name.

Formula: `x = log pi - log pi_teacher` of each sampled token, which the regularizer `teacher` reads.

Rollouts have no help: the policy plays, and the teacher says the log-prob of each token that the policy sampled, under
the same allowed set and temperature (column `teacher_logprob`). `update.regularizers = [{name = "teacher"}]` turns the
column into a reverse KL per token. The teacher is

    folder    a model in a folder or of the hub (`path`) with the tokenizer of the policy
    endpoint  a server (`url`, `model`) that returns the log-probs of a prompt of token ids: POST URL/completions with
              echo and logprobs, as vLLM answers it. It knows no allowed sets and no temperature, so that
              `engine.actions` must be free, `sampling.temperature` 1, and top_k and top_p off
    own       the policy itself, as it is at the update, with a prompt that shows the actions of a success of the same
              task, which another chain had (`SDPO`); chains that failed are taught

Source: KDRL, arXiv:2506.02208, and Thinking Machines, "On-Policy Distillation" (2025), for a teacher model; SDPO,
arXiv:2601.20802, for `own`: KL(pi(. | x) || stopgrad pi(. | x, f)), f a successful rollout of the task. Departures from
SDPO: the KL is that of the sampled tokens and not of whole distributions, f is the shortest success so far, also of an
earlier batch, and there is no textual feedback.

Formula: teacher_logprob_t = log pi_teacher(y_t | x, y_<t), and for `own` log pi(y_t | x, f, y_<t).

Limits: `own` makes the prompts anew, and does so only for one agent, for chains, and for a learner in one process.
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
        dtype: type of its weights; auto is bfloat16 on CUDA and float32 on the CPU.
        device: where it computes; auto is CUDA if torch finds a CUDA device.
        url: address of the endpoint, with /v1 at its end.
        model: the teacher's name at the endpoint.
        api_key: key of the endpoint, best as "${NAME}".
        concurrency: most requests at the same time.
        timeout_s: seconds per request.
        heading: the line before the actions of a success.
        keep: most tasks whose successes are kept; the oldest go first.
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
        """What the policy as a teacher reads of a chain's task; empty if the chain has no such teacher."""
        actions = self.solutions.get(record.task.key)
        if not actions or record.success or lost(record):
            return ""
        return "\n".join([self.config.heading, *actions])

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"solutions": {key: list(actions) for key, actions in self.solutions.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.solutions = {key: [str(action) for action in actions] for key, actions in state["solutions"].items()}


def make(config: Config, seed: int) -> Teacher:
    """See `agentrl.rollout.guide`; nothing is drawn at random."""
    return Teacher(config)


def teaches(config: Config) -> Teaching:
    """Who teaches."""
    options = {name: getattr(config, name) for name in Teaching._fields}
    return Teaching(**options)


def words(config: Config) -> list[str]:
    """What a new tokenizer must know to read a success."""
    return [config.heading] if config.source == "own" else []
