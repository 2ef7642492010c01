"""Engines, which generate text (embedded, vLLM servers, OpenAI-compatible endpoints), and the protocol of a policy."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentrl.engines.endpoint import Traffic, endpoint_of
    from agentrl.engines.entry import Demands, EngineFile, EngineOptions, Launcher, Serving
    from agentrl.engines.hf_engine import HfEngine
    from agentrl.engines.openai import OpenAIPolicy, from_word
    from agentrl.engines.policy import Policy, Sessions, Wordless
    from agentrl.engines.sampling import Sampling, stopping
    from agentrl.engines.server_actor import ServerActor, StartedServer
    from agentrl.engines.support import base_config
    from agentrl.engines.vllm_process import WatchedServer

__all__ = [
    "Demands",
    "EngineFile",
    "EngineOptions",
    "HfEngine",
    "Launcher",
    "OpenAIPolicy",
    "Policy",
    "Sampling",
    "ServerActor",
    "Serving",
    "Sessions",
    "StartedServer",
    "Traffic",
    "WatchedServer",
    "Wordless",
    "base_config",
    "endpoint_of",
    "from_word",
    "stopping",
]

_HOME = {
    "Demands": "agentrl.engines.entry",
    "EngineFile": "agentrl.engines.entry",
    "EngineOptions": "agentrl.engines.entry",
    "HfEngine": "agentrl.engines.hf_engine",
    "Launcher": "agentrl.engines.entry",
    "OpenAIPolicy": "agentrl.engines.openai",
    "Policy": "agentrl.engines.policy",
    "Sampling": "agentrl.engines.sampling",
    "ServerActor": "agentrl.engines.server_actor",
    "StartedServer": "agentrl.engines.server_actor",
    "WatchedServer": "agentrl.engines.vllm_process",
    "Serving": "agentrl.engines.entry",
    "Sessions": "agentrl.engines.policy",
    "Traffic": "agentrl.engines.endpoint",
    "Wordless": "agentrl.engines.policy",
    "base_config": "agentrl.engines.support",
    "endpoint_of": "agentrl.engines.endpoint",
    "from_word": "agentrl.engines.openai",
    "stopping": "agentrl.engines.sampling",
}


def __getattr__(name: str) -> Any:
    """A public name, whose module is imported at the first use of the name."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
