"""Reads the folders of runs: their state, the list of all runs, and the live view."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
