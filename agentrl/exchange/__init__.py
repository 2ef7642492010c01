"""The step graph in other formats: JSON lines, Parquet, networkx, chat messages, files of TRL and verl."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
