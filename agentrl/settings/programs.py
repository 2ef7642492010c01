"""The program of [agents.main]: a command, or a function that this process calls."""

import importlib
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentrl.rollout import Program, program_path


def program_of(command: str, agent: str, crash: str) -> Program | None:
    """The program that plays the tasks; None if neither a command nor a function is named.

    Args:
        command: a program and its arguments, as in a shell.
        agent: `package.module:function`.
        crash: see `agentrl.rollout.program.Program`.

    Raises:
        ValueError: a command and a function are both named, the command's program or script does not exist, or the
            function cannot be imported.
    """
    if not command and not agent:
        return None
    if command and agent:
        raise ValueError("agents.main sets both command and agent: set only one of these two options")
    if command:
        _check_command(command)
        return Program(command=command, crash=crash)
    return Program(agent=_function(agent), crash=crash)


def _check_command(command: str) -> None:
    where = f"agents.main.command = {command!r:.200}"
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ValueError(f"{where} is no command: {error}") from None
    if not words or shutil.which(words[0], path=program_path()) is None:
        name = words[0] if words else ""
        raise ValueError(f"{where}: there is no program {name!r}; name one on the PATH, or its path")
    scripts = [word for word in words[1:] if word.endswith(".py")]
    if scripts and not Path(scripts[0]).is_file():
        raise ValueError(f"{where}: no such file: {scripts[0]} (the working folder of commands is {Path.cwd()})")


def _function(path: str) -> Callable[..., Any]:
    where = f"agents.main.agent = {path!r:.200}"
    module, _, name = path.partition(":")
    if not name:
        raise ValueError(f"{where}: write it as package.module:function")
    try:
        found = importlib.import_module(module)
    except (ImportError, TypeError, ValueError) as error:  # ".", "a..b" raise the last two
        raise ValueError(f"{where} cannot be imported: {error}") from None
    function = getattr(found, name, None)
    if not callable(function):
        raise ValueError(f"{where}: the module {module} has no function {name}")
    chosen: Callable[..., Any] = function
    return chosen
