"""Environments of other packages in a Python of their own, and our environments served over OpenEnv and MCP."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
