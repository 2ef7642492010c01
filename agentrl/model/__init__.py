"""A causal language model as the trainer sees it: loading, packing, tree attention, log-probabilities."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
