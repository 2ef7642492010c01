"""Learners and rollouts on several processes and machines: ranks of torchrun, and Ray."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
