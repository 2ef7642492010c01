"""The exec loop inside the sandbox. Sent as source to a bare interpreter, so it imports little and nothing of ours.

Commands come as length-prefixed marshal on one pipe (the parent is trusted). Replies go as lines on another pipe, each
beginning with the call's nonce. Text without the nonce that a cell writes there is skipped; at worst a cell spoils its
own episode.

Limit: cells run in this process. They can forge their own reply, which is why a reply never decides a reward.
"""

# ruff: noqa: BLE001, SIM105, SIM115  a cell may raise anything; contextlib would be one more import
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAIN = type(sys)("__main__")
MAIN.__dict__.update(__builtins__=__builtins__)
STATE = {"running": False, "cells": 0}


class CellTimeout(BaseException):
    """Time is up; not an Exception, so that a cell's own `except Exception` does not swallow it."""


def quote(text: str) -> str:
    """A text as JSON in ASCII."""
    try:
        from _json import encode_basestring_ascii as encode
    except ImportError:
        from json import dumps as encode
    return encode(text)


def receive(pipe: int) -> "Any":
    """The next command, or None when the parent is gone."""
    head = read(pipe, 4)
    body = read(pipe, int.from_bytes(head, "big")) if head else b""
    return marshal.loads(body) if body else None


def read(pipe: int, size: int) -> bytes:
    """Exactly `size` bytes, or nothing at the end."""
    parts = []
    while size:
        part = os.read(pipe, min(size, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def answer(pipe: int, nonce: str, fields: "dict[str, str]") -> None:
    """One reply: a line that starts with the nonce."""
    body = ",".join(quote(key) + ":" + value for key, value in fields.items())
    data = ("\n" + nonce + "{" + body + "}\n").encode("ascii")
    while data:
        data = data[os.write(pipe, data) :]


def write_files(files: "dict[str, bytes]") -> None:
    """Put the session's files into the working folder."""
    for path, content in files.items():
        folder = os.path.dirname(path)
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)


def reap() -> None:
    """Collect the children that an earlier cell left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except OSError:
        pass


def expire(signum: int, frame: object) -> None:
    """The timer's handler."""
    if STATE["running"]:
        raise CellTimeout


def give_input(text: bytes) -> None:
    """Make a text the standard input; with an empty text the input ends at once."""
    source = os.open("/dev/null", os.O_RDONLY)
    if text:
        path = ".stdin"
        with open(path, "wb") as file:
            file.write(text)
        os.close(source)
        source = os.open(path, os.O_RDONLY)
        os.unlink(path)
    os.dup2(source, 0)
    os.close(source)
    sys.stdin = open(0, encoding="utf-8", errors="replace", closefd=False)


def run_cell(code: str, name: str, echo: bool) -> str:
    """Run a cell; returns the `repr` of its last expression if `echo` is set and there is one, else an empty text."""
    import _ast

    tree: Any = compile(code, name, "exec", _ast.PyCF_ONLY_AST)
    last = None
    if echo and tree.body and isinstance(tree.body[-1], _ast.Expr):
        last = compile(_ast.Expression(tree.body.pop().value), name, "eval")
    exec(compile(tree, name, "exec"), MAIN.__dict__)
    value = None if last is None else eval(last, MAIN.__dict__)
    return "" if value is None else repr(value)


def describe(error: BaseException, name: str, code: str, cap: int) -> "tuple[str, str, str]":
    """[name, message, traceback] of what a cell raised."""
    try:
        import linecache
        import traceback
    except Exception:  # a module that they need is hidden, or shadowed by a file of the code
        return type(error).__name__[:200], str(error)[:cap], type(error).__name__

    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != name:
        trace = trace.tb_next
    kind = type(error).__name__
    try:
        value = str(error)
        lines = "".join(traceback.format_exception(type(error), error, trace))
    except BaseException:  # an exception may fail to say what it is
        value, lines = "", kind
    return kind[:200], value[:cap], lines[-cap:]


def fetched(paths: "list[str]", cap: int) -> str:
    """A JSON object with the contents of the requested files that exist, in base64."""
    import binascii

    found = {}
    for path in paths:
        try:
            with open(path, "rb") as file:
                data = file.read(cap + 1)
        except OSError:
            continue
        if len(data) <= cap:
            found[path] = quote(binascii.b2a_base64(data, newline=False).decode())
    return "{" + ",".join(quote(path) + ":" + data for path, data in found.items()) + "}"


def execute(command: "dict[str, Any]") -> "dict[str, str]":
    """Run one command; the fields of its reply as JSON texts."""
    import signal

    STATE["cells"] += 1
    name, cap = "<cell {}>".format(STATE["cells"]), command["cap"]
    kind = value = trace = text = ""
    code, late = "0", "false"
    reap()
    give_input(command["stdin"])
    signal.signal(signal.SIGALRM, expire)
    try:
        STATE["running"] = True
        signal.setitimer(signal.ITIMER_REAL, command["timeout"])
        text = run_cell(command["code"], name, command["echo"])[:cap]
        STATE["running"] = False
    except CellTimeout:
        late, code = "true", "null"
    except SystemExit as stop:
        code = str(int(stop.code) if isinstance(stop.code, int) else int(stop.code is not None))
        if stop.code is not None and not isinstance(stop.code, int):
            print(stop.code, file=sys.stderr)
    except BaseException as error:  # KeyboardInterrupt and the like end a cell, not the loop
        STATE["running"], code = False, "1"
        kind, value, trace = describe(error, name, command["code"], cap)
    STATE["running"] = False
    signal.setitimer(signal.ITIMER_REAL, 0)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    fields = {"text": quote(text), "error": quote(kind), "value": quote(value), "traceback": quote(trace)}
    return {**fields, "exit": code, "late": late, "files": fetched(command["fetch"], command["fetch_cap"])}


def loop(commands: int, replies: int, setup: "dict[str, Any]") -> None:
    """Serve until the parent closes the pipe."""
    sys.modules["__main__"] = MAIN
    sys.argv = [""]
    sys.path[:0] = setup["path"]
    os.chdir(setup["folder"])
    sys.stdout = open(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False, buffering=1)
    write_files(setup["files"])
    answer(replies, setup["nonce"], {})
    while True:
        command = receive(commands)
        if command is None:
            os._exit(0)
        answer(replies, command["nonce"], execute(command))
