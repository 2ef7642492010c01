"""What a tool is. A catalogue file in `tools/` offers a frozen `Config` and `make(config) -> Tool` (or `Toolbox`).

A file that can run code also offers `runner(config) -> CodeRunner` (`agentrl.tool.code`).

The signature and docstring of `__call__` become the JSON schema a model sees; an exception becomes a message the model
can read, with status `tool_error`. `async def __call__` is a tool that waits: several of its calls run at once.

A tool with `reset()` keeps state for an episode: every environment instance gets one of its own, reset when an episode
begins, closed (`close()`, where it has one) with the instance. A tool without `reset` is made once a process and shared
by all its episodes, so it must be safe to call from several threads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from agentrl.catalogue import CatalogueFile, hook

if TYPE_CHECKING:
    from agentrl.tool.schema import ToolSpec


@runtime_checkable
class Tool(Protocol):
    """A typed callable. `name` is what a model calls it by."""

    name: str

    def __call__(self, **arguments: Any) -> str:
        """Carry out one call and answer in words."""
        ...


@runtime_checkable
class Toolbox(Protocol):
    """Several tools from one source, such as a server, that come with schemas of their own."""

    def specs(self) -> "Sequence[ToolSpec]":
        """The tools."""
        ...


class ToolError(Exception):
    """What a tool raises to tell the model in its own words that a call failed; of other exceptions the type is told
    too."""


class ToolFault(RuntimeError):
    """What a tool raises when its service is lost (no retriever, no sandbox): nobody's doing.

    A `ToolEnv`, and any environment that uses tools, lets it through: the episode is retried, then `env_error`, and is
    never scored. Every other exception of a tool becomes a message the model can read.
    """


@dataclass(frozen=True, kw_only=True)
class ToolFile(CatalogueFile):
    """The file of a tool; see the module."""

    KIND: ClassVar[str] = "tools"

    make: Callable[[Any], Any] = hook(help="(config) -> Tool or Toolbox")
    runner: Callable[[Any], Any] | None = hook("", "(config) -> CodeRunner, of a tool that runs code", None)
