"""Engines, which generate text (embedded, vLLM servers, OpenAI-compatible endpoints), and the protocol of a policy."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
