"""The verbs of `agentrl envs code_repo`."""

import json
from collections.abc import Sequence
from pathlib import Path

from agentrl.cli import Parser
from agentrl.envs.code_repo import mistakes, modules
from agentrl.files import write_atomically
from agentrl.tool import CodeRunner, open_runner

HERE = Path(__file__).parent


def runner_without(*origins: str) -> CodeRunner:
    """A sandbox without these modules of the standard library."""
    return open_runner({"name": "python_sandbox", "echo": False, "hide": list(origins)})


def collect(words: Sequence[str]) -> int:
    """Write modules.json.gz, the sources of the modules and the values of their calls, from this Python."""
    Parser("agentrl envs code_repo collect", collect.__doc__).parse_args(list(words))
    target, data = HERE / "modules.json.gz", modules.collect(runner_without())
    write_atomically(target, data)
    print(f"{len(modules.calls())} modules, {len(data)} bytes: {target}")
    return 0


def verify(words: Sequence[str]) -> int:
    """Try the mistakes of each module in the sandbox, and write those that make a task to mistakes.json."""
    Parser("agentrl envs code_repo verify", verify.__doc__).parse_args(list(words))
    found = {}
    for name, module in modules.modules().items():
        found[name] = mistakes.verified(runner_without(module.origin), module)
        print(f"{name}: {len(found[name])} tasks", flush=True)
    rows = {name: [[*one.mutation, one.undo] for one in listed] for name, listed in found.items()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
    target = HERE / "mistakes.json"
    write_atomically(target, f"{{\n{lines}\n}}\n".encode())
    print(f"{sum(map(len, rows.values()))} mistakes in {len(rows)} modules make a task: {target}")
    return 0
