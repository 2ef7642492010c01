"""The embedded engine as a catalogue entry: transformers in this process, with continuous batching and a KV cache."""

from typing import Any

from pydantic import Field

from agentrl.engines.entry import EngineOptions, Serving

WEIGHTS = True


class Config(EngineOptions, frozen=True):
    """Options of the embedded engine.

    Attributes:
        max_slots: largest number of sequences whose KV cache is kept, and of answers that are generated at once.
    """

    max_slots: int = Field(256, ge=1)


def make(config: Config, serving: Serving) -> Any:
    """See `agentrl.engines.HfEngine`."""
    from agentrl.engines.hf.engine import HfEngine
    from agentrl.engines.hf.forwards import end_ids

    settings = getattr(serving.model, "generation_config", None)
    return HfEngine(
        serving.model,
        serving.tokenizer,
        serving.sampling,
        max_slots=config.max_slots,
        max_context=config.max_context,
        actions=config.actions,
        deterministic=serving.deterministic,
        entropies=serving.entropies,
        nats=serving.nats,
        version=serving.version,
        end_ids=sorted(end_ids(getattr(settings, "eos_token_id", None), serving.tokenizer, serving.end_ids)),
    )
