"""What is tried before a run: the environment and its tasks, its reward under attack, the memory."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
