"""`agentrl serve mcp ENV [key=value ...] [--task KEY] [--http HOST:PORT]`: an environment's tools for any MCP client.

The client sees the environment's tools and two more: `new_task` begins an episode and returns its first message, and
`final_answer` gives the final answer, which ends the episode and returns its reward (in the environment desk, the final
answer is a message to the customer). If the environment has no tools, the client sees `act` and `new_task`. Without
--http the server uses stdin and stdout, for clients that start servers themselves. The server plays one episode at a
time.
"""

from collections.abc import Sequence

from agentrl.cli._parser import Parser
from agentrl.config import override, resolve
from agentrl.env import EnvironmentFile, panel_tasks, tasks_of
from agentrl.foreign import McpTable, serve_mcp


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl serve mcp", __doc__)
    parser.add_argument("env")
    parser.add_argument("options", nargs="*", metavar="key=value", help="options of the environment")
    parser.add_argument("--task", help="key of the task to begin with; default: the environment's first task")
    parser.add_argument("--http", metavar="HOST:PORT", help="serve http://HOST:PORT/mcp instead of stdin and stdout")
    arguments = parser.parse_intermixed_args(words)
    entry = resolve(EnvironmentFile, override({"name": arguments.env}, arguments.options), "env")
    task = panel_tasks(entry, [arguments.task])[0] if arguments.task else tasks_of(entry)[0]
    host, port = address(arguments.http) if arguments.http else ("", 0)
    table = McpTable(entry, task)
    try:
        serve_mcp(table, host, port)
    finally:
        table.close()
    return 0


def address(word: str) -> tuple[str, int]:
    """(host, port) of a word HOST:PORT; raises ValueError if the word has another form."""
    host, colon, port = word.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{word!r} is no address: write HOST:PORT, such as 127.0.0.1:8765")
    return host, int(port)
