"""The step graph: columns, tokens, paths, segments, storage and exchange."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
