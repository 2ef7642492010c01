"""`agentrl inspect RUN [--port N] [--seconds S]`: look at every stored step of a run, with any credit method.

It prints an address to open in a browser on this machine, and serves a page there until Ctrl-C. The page shows any
iteration and the episodes of evaluations, computes the credit of any method with any options, searches, and follows a
run that is still training. It writes nothing. From another machine:
ssh -L 8123:127.0.0.1:8123 HOST agentrl inspect RUN --port 8123
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from agentrl.cli._parser import Parser
from agentrl.serve import serve_inspector


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl inspect", __doc__)
    parser.add_argument("run", type=Path, help="a run's folder, such as runs/NAME")
    parser.add_argument("--port", type=int, default=0, help="default: any free port")
    parser.add_argument(
        "--seconds", type=bound, default=20.0, help="longest time to compute one view of the page; default 20"
    )
    given = parser.parse_args(words)
    if not 0 <= given.port < 1 << 16:
        raise ValueError(f"--port {given.port} is no port: give a number from 0 to 65535")
    try:
        inspector = serve_inspector(given.run, port=given.port, seconds=given.seconds)
    except OSError as error:
        why = f"{error.strerror or error}: choose another --port, or leave it out for any free port"
        raise ValueError(f"cannot listen at 127.0.0.1:{given.port}: {why}") from None
    try:
        print(f"{given.run} at {inspector.address} (Ctrl-C ends it)", flush=True)
        inspector.server.serve_forever()
    finally:
        inspector.server.server_close()
    return 0


def bound(text: str) -> float:
    """A number of seconds, above 0 and at most one day."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0 and up to 86400")
    return number
