"""`agentrl serve policy RUN|MODEL [--port N] [--out FILE]`: an OpenAI-compatible endpoint that records its answers.

It serves /v1/chat/completions and /v1/responses (tools, streaming, n, logprobs). The API key (any text of up to 200
characters) names the episode; POST /v1/agentrl/end with {"task": ..., "reward": ..., "success": ...} ends the episode.
When the server stops (Ctrl-C), the ended episodes are stored in --out as a step graph, with the sampled tokens and
their log-probs, for example for `agentrl credit METHOD --steps FILE`. Sampling options of requests, such as
temperature and stop, have no effect: --temperature sets the temperature.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from agentrl.cli import _stop
from agentrl.cli._eval_words import check_out
from agentrl.cli._parser import Parser, positive, temperature
from agentrl.env import Limits
from agentrl.programs import Contestant, Guests
from agentrl.run import Loop

LOOK_S = 0.5  # seconds between two checks whether a signal has arrived


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl serve policy", __doc__)
    parser.add_argument("model", metavar="RUN|MODEL")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="0 takes any free port")
    parser.add_argument("--out", type=Path, help="a .safetensors file for the ended episodes")
    parser.add_argument("--temperature", type=temperature, help="default: the run's, or 1")
    parser.add_argument(
        "--turns",
        type=positive,
        default=1000,
        help="largest number of answers per episode; the server refuses further requests",
    )
    parser.add_argument(
        "--turn-tokens",
        type=positive,
        default=1024,
        help="largest number of tokens per answer; a longer answer is cut off there",
    )
    arguments = parser.parse_intermixed_args(list(words))
    if not 0 <= arguments.port < 1 << 16:
        raise ValueError(f"--port {arguments.port} is no port: give a number from 0 to 65535")
    if arguments.out is not None:
        if arguments.out.suffix != ".safetensors":
            raise ValueError(f"--out {arguments.out}: name a file that ends with .safetensors")
        check_out(arguments.out)
    actor = Contestant.model(arguments.model, arguments.temperature)
    guests = Guests(actor, Limits(turns=arguments.turns, turn_tokens=arguments.turn_tokens))
    try:
        with Loop() as loop:
            loop.run(_serve(guests, actor.name, arguments.host, arguments.port))
    finally:
        stored = guests.store(arguments.out) if arguments.out is not None else 0
        _stop.on_stop(lambda: _words(stored, guests.open, arguments.out))
    return 0


def _words(stored: int, unfinished: int, out: Path | None) -> str:
    if out is None:
        return ""
    if not stored:
        return f"; no episode has ended and {unfinished} were in progress, so nothing is stored"
    return f"; {stored} episodes are stored in {out}, {unfinished} in progress are lost"


async def _serve(guests: Guests, name: str, host: str, port: int) -> None:
    from agentrl.programs import Endpoint

    endpoint = Endpoint(name, host, port, admit=guests.admit, end=guests.end)
    endpoint.open()
    print(f"{name} at {endpoint.url}", flush=True)
    try:
        # SIGTERM and Ctrl-C raise KeyboardInterrupt in the code that is running. In a destructor the exception is lost.
        # So this loop also checks whether a signal has arrived.
        while not _stop.requested():
            await asyncio.sleep(LOOK_S)
        raise KeyboardInterrupt
    finally:
        endpoint.close()
