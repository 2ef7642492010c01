"""What a tool is. A catalogue file in `tools/` offers a frozen `Config` and `make(config) -> Tool`.

The signature and docstring of `__call__` become the JSON schema a model sees; an exception becomes a message the model
can read, with status `tool_error`.
"""

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Tool(Protocol):
    """A typed callable. `name` is what a model calls it by."""

    name: str

    def __call__(self, **arguments: Any) -> str:
        """Carry out one call and answer in words."""
        ...


class ToolFault(RuntimeError):
    """What a tool raises when its service is lost (no retriever, no sandbox): nobody's doing.

    A `ToolEnv`, and any environment that uses tools, lets it through: the episode is retried, then `env_error`, and is
    never scored. Every other exception of a tool becomes a message the model can read.
    """
