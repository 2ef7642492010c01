"""An engine of a package of one's own: the embedded one, with an option more."""

from typing import Any

from agentrl.engines import EngineOptions, Serving

WEIGHTS = True


class Config(EngineOptions, frozen=True):
    batch: int = 1


def make(config: Config, serving: Serving) -> Any:
    from agentrl.engines import HfEngine

    return HfEngine(
        serving.model, serving.tokenizer, serving.sampling, max_slots=config.batch, max_context=config.max_context
    )
