"""A training service that speaks Tinker's protocol as the learner of a run (`learner.name = "tinker"`)."""

from agentrl.extras import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
