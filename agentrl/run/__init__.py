"""A run: its folder and state, the rollouts, the policies that learn, and the training loop that connects them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
