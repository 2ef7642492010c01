"""`agentrl serve SERVICE ...`: serve a policy, a search corpus, or an environment to MCP or OpenEnv clients.

SERVICE is policy (an OpenAI-compatible endpoint), retriever (a search server), mcp (an environment's tools for MCP
clients) or openenv (an environment for clients of OpenEnv).
"""

import importlib
import pkgutil
from collections.abc import Sequence

from agentrl import catalogue, cli

PREFIX = "_serve_"  # a module whose name begins with this is a service, and has `main(words) -> exit code`


def main(words: Sequence[str]) -> int:
    """Run the service that the first word names."""
    known = [name.removeprefix(PREFIX) for _, name, _ in pkgutil.iter_modules(cli.__path__) if name.startswith(PREFIX)]
    if words and words[0] in ("-h", "--help"):
        print(f"{__doc__}\nservices: {', '.join(known)}; see agentrl serve SERVICE --help")
        return 0
    if not words or words[0] not in known:
        word = words[0] if words else ""
        raise ValueError(f"unknown service {word!r}{catalogue.nearest(word, known)}; see agentrl serve --help")
    code: int = importlib.import_module(f"{cli.__name__}.{PREFIX}{words[0]}").main(words[1:])
    return code
