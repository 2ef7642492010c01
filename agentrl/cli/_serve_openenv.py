"""`agentrl serve openenv ENV [key=value ...] [--port N] [--python PYTHON]`: an environment for clients of OpenEnv.

The package openenv has the server, which runs in the Python that --python names (docs/foreign.md). Each session plays
its own instance of the environment. The argument `seed` of `reset` chooses a task by its position in the list, and
`task=KEY` by its key; without these arguments each `reset` takes the next task of the list. If the environment has
tools, actions are calls of its tools; the tool `final_answer` ends the episode (in the environment desk, the final
answer is a message to the customer). If the environment has no tools, an action is {"action": TEXT}. Ctrl-C stops the
server.
"""

from collections.abc import Sequence

from agentrl.cli import _stop
from agentrl.cli._parser import Parser, positive
from agentrl.config import override, resolve
from agentrl.env import EnvironmentFile
from agentrl.foreign import OpenEnvPlace, OpenEnvTable, serve_openenv


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl serve openenv", __doc__)
    parser.add_argument("env")
    parser.add_argument("options", nargs="*", metavar="key=value", help="options of the environment")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any free port")
    parser.add_argument("--sessions", type=positive, default=16, help="largest number of sessions at a time")
    parser.add_argument(
        "--token-variable", default="", metavar="NAME", help="environment variable of the token that clients send"
    )
    parser.add_argument("--python", default="", help="the Python that has the package openenv; default: this one")
    arguments = parser.parse_intermixed_args(list(words))
    if not 0 <= arguments.port < 1 << 16:
        raise ValueError(f"--port {arguments.port} is no port: give a number from 0 to 65535")
    entry = resolve(EnvironmentFile, override({"name": arguments.env}, arguments.options), "env")
    place = OpenEnvPlace(
        host=arguments.host,
        port=arguments.port,
        sessions=arguments.sessions,
        token_variable=arguments.token_variable,
        python=arguments.python,
    )
    serve_openenv(OpenEnvTable(entry), place, lambda url: print(f"{entry.name} at {url}", flush=True), _stop.requested)
    raise KeyboardInterrupt
