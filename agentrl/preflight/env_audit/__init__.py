"""A report on an environment: the laws that it keeps, and what it pays for."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
