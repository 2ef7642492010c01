"""Checks a user's rows: their columns, duplicates, leaks between splits, lengths of prompts, answers and solutions."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
