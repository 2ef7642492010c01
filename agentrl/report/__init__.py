"""Pages and pictures of a run: what it learned, which steps get the credit, and the card of an exported model."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
