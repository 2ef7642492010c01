"""The protocol of a tool.

A catalogue file in `tools/` offers a frozen `Config` and `make(config) -> Tool` (or `Toolbox`). A file that can run
code also offers `runner(config) -> CodeRunner` (`agentrl.tool.CodeRunner`).

The signature and docstring of `__call__` become the JSON schema that a model sees. An exception (except `ToolFault`)
becomes a message that the model can read, and the step gets the status `tool_error`. `async def __call__` makes a tool
that waits: consecutive calls of such tools in one turn run at the same time.

A tool with `reset()` keeps state for an episode. Every environment instance makes such a tool for itself. The instance
calls `reset()` when an episode begins, and the tool's `close()`, if it has one, when the instance is closed. A tool
without `reset` is made once per process and shared by all episodes, so it must be safe to call from several threads.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from agentrl.catalogue import CatalogueFile, hook

if TYPE_CHECKING:
    from agentrl.tool.schema import ToolSpec


@runtime_checkable
class Tool(Protocol):
    """A typed callable. A model calls it by `name`."""

    name: str

    def __call__(self, **arguments: Any) -> str:
        """Carry out one call and return the result as a text."""
        ...


@runtime_checkable
class Toolbox(Protocol):
    """Several tools from one source, such as a server, which also gives the schemas of the tools."""

    def specs(self) -> "Sequence[ToolSpec]":
        """The tools."""
        ...


class ToolError(Exception):
    """Raised by a tool if a call failed. The model reads only the message.

    If a tool raises another exception (except `ToolFault`), the model reads the type of the exception and the message.
    """


class ToolFault(RuntimeError):
    """Raised by a tool when its service is lost (no retriever, no sandbox), which is not the agent's fault.

    Environments that use tools, such as a `ToolEnv`, do not catch this exception. The episode is played again; if the
    last retry fails too, the episode ends with `env_error` and is not scored.
    """


@dataclass(frozen=True, kw_only=True)
class ToolFile(CatalogueFile):
    """The file of a tool; see the module's docstring."""

    KIND: ClassVar[str] = "tools"

    make: Callable[[Any], Any] = hook(help="(config) -> Tool or Toolbox")
    runner: Callable[[Any], Any] | None = hook("", "(config) -> CodeRunner; for a tool that runs code", None)
