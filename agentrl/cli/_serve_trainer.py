"""`agentrl serve trainer`: the learner and the embedded engine behind Tinker's protocol."""

import argparse
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from agentrl.cli import _stop
from agentrl.cli._parser import Parser, positive
from agentrl.config import override, validate
from agentrl.extras import require_training
from agentrl.http import is_loopback
from agentrl.model import ModelConfig

if TYPE_CHECKING:
    from agentrl.training_server import ServiceLimits

API_KEY = re.compile(r"tml-[!-~]+")
LOOK_S = 0.5  # seconds between two checks whether a signal has arrived
TRAINER = """\
`agentrl serve trainer MODEL [--checkpoints FOLDER] [--port N] [model.NAME=VALUE ...]`: a training server.

It speaks the protocol of the Tinker SDK (0.16 to 0.38; the extra tinker for 0.25 and newer): clients train LoRA
adapters on MODEL, a folder or a hub name, and sample from them. `agentrl train RECIPE learner.name=tinker
learner.url=URL`, the SDK and the scripts of its cookbook are clients. Their base model is MODEL, or the name of --name.
See docs/serve-trainer.md.
"""


def parser() -> Parser:
    """The options, without those of the address."""
    made = Parser("agentrl serve trainer", TRAINER)
    made.add_argument("model", metavar="MODEL")
    made.add_argument("options", nargs="*", metavar="model.NAME=VALUE", help="such as model.dtype=bfloat16")
    made.add_argument("--name", help="the base model's name for clients; default: MODEL")
    made.add_argument(
        "--checkpoints",
        type=Path,
        help="folder of the checkpoints; default: a temporary one, which is deleted at the end",
    )
    made.add_argument(
        "--token-variable",
        default="",
        metavar="NAME",
        help="environment variable of the token, which clients send as TINKER_API_KEY; it must begin with tml-",
    )
    made.add_argument("--models", type=positive, default=8, help="largest number of models that are trained at a time")
    made.add_argument("--rank", type=positive, default=256, help="largest rank of adapters")
    made.add_argument(
        "--max-context",
        type=positive,
        help="tokens of prompt and answer; default: the model's positions, at most 32768",
    )
    made.add_argument("--slots", type=positive, default=64, help="largest number of answers that are drawn at once")
    made.add_argument(
        "--session-s", type=positive, default=1800, help="seconds of silence after which a client's models are freed"
    )
    return made


def check_token(host: str, allowed: Sequence[str], variable: str) -> str:
    """The token of the server; empty for none.

    Raises:
        ValueError: the variable is not set, its text is no API key of the SDK, or the server has no token and can be
            reached from other machines.
    """
    token = os.environ.get(variable, "") if variable else ""
    if variable and not token:
        raise ValueError(f"--token-variable {variable}: the environment variable {variable} is not set: set it")
    if variable and not API_KEY.fullmatch(token):
        raise ValueError(
            f"--token-variable {variable}: the token in it is no API key of the SDK: take one of the form tml-..., of "
            "printable ASCII characters without spaces"
        )
    named = [f"--host {host}"] if not is_loopback(host) else [f"--allow-host {name}" for name in allowed]
    if not token and named:
        raise ValueError(
            f"{named[0]}: the server can be reached from other machines: set a token in an environment variable, and "
            "name the variable with --token-variable"
        )
    return token


def serve(arguments: argparse.Namespace) -> int:
    """Serve until a signal arrives."""
    require_training("agentrl serve trainer")
    token = check_token(arguments.host, arguments.allow_host, arguments.token_variable)
    config = model_config(arguments.model, arguments.options)
    folder: Path | None = arguments.checkpoints
    if folder is not None:
        _check_folder(folder)
    from agentrl.model import load_model
    from agentrl.training_server import TrainingService, messages, serve_trainer

    loaded = load_model(config, 0)
    with ExitStack() as stack:
        kept = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="agentrl-trainer-")))
        name = arguments.name or arguments.model
        here = Path(arguments.model)
        tokenizer = str(here.resolve()) if here.is_dir() else arguments.model  # for clients in other folders
        service = TrainingService(loaded, name, kept, _limits(arguments), tokenizer=tokenizer)
        address = (arguments.host, arguments.port)
        server = serve_trainer(service, *address, token=token, allowed=arguments.allow_host)
        service.start()
        stack.callback(service.stop)
        server.start("agentrl trainer http")
        stack.callback(server.stop)
        _stop.on_stop(lambda: f"; the checkpoints are in {folder}" if folder else "; the checkpoints are deleted")
        print(f"trainer of {name} at {server.url}", flush=True)
        if messages() is None:
            note = "clients with SDK 0.25 and newer need the extra tinker here: pip install 'agentrl-stepgraph[tinker]'"
            print(f"note: {note}", file=sys.stderr)
        wait()
    raise KeyboardInterrupt


def wait() -> None:
    """Wait for a signal. If its exception was lost in a destructor, the next look notices it."""
    while not _stop.requested():
        time.sleep(LOOK_S)


def _check_folder(folder: Path) -> None:
    """Raise ValueError if the folder of the checkpoints cannot be made or written; the service makes it."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise ValueError(f"--checkpoints {folder}: {error.strerror or error}: name a folder to write to") from None


def model_config(model: str, options: Sequence[str]) -> ModelConfig:
    """Section [model] from the words of the command line; ValueError if they do not fit."""
    given = override({}, options)
    own = tuple(f"model.{name}{end}" for name in ("path", "new", "lora") for end in "=.")
    wrong = [one for one in options if not one.strip().startswith("model.") or one.strip().startswith(own)]
    if wrong:
        raise ValueError(
            f"{wrong[0]!r} is no option here: serve trainer takes model.dtype, model.device, model.template and "
            "model.template_file; clients choose the adapters"
        )
    return validate(ModelConfig, {**given.get("model", {}), "path": model}, "model")


def _limits(arguments: argparse.Namespace) -> "ServiceLimits":
    from agentrl.training_server import ServiceLimits

    return ServiceLimits(
        models=arguments.models,
        rank=arguments.rank,
        context=arguments.max_context or 0,
        slots=arguments.slots,
        session_s=arguments.session_s,
    )
