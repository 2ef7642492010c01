"""A learner whose weights a training service holds, which speaks Tinker's protocol."""

from agentrl.extras import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
