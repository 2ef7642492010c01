"""Rollouts: agents, episodes, branches and batches, and the step graph of their records."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
