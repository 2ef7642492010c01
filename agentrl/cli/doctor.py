"""`agentrl doctor [--json]`: what is installed here, what each extra would add, and what this machine can run."""

import importlib.util
import json
import os
from collections.abc import Sequence
from typing import Any

from agentrl.cli._parser import Parser
from agentrl.runfolder import versions

EXTRAS = {
    "alfworld": "alfworld",
    "textworld": "textworld",
    "lora": "peft",
    "openai": "openai",
    "tensorboard": "tensorboardX",
    "report": "matplotlib",
}


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl doctor", __doc__)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(words)
    found = examine()
    if given.json:
        print(json.dumps(found))
        return 0
    for name, value in found["versions"].items():
        print(f"{name:20} {value}")
    print(f"{'cores':20} {found['cores']}")
    print(f"{'accelerator':20} {found['accelerator']}")
    for extra, there in found["extras"].items():
        said = "there" if there else f"missing: pip install 'agentrl-stepgraph[{extra}]'"
        print(f"extra {extra:14} {said}")
    return 0


def examine() -> dict[str, Any]:
    """Versions, cores, accelerator, extras."""
    import torch

    cuda = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none: models run on the CPU"
    return {
        "versions": versions(),
        "cores": os.cpu_count(),
        "accelerator": cuda,
        "extras": {extra: importlib.util.find_spec(module) is not None for extra, module in EXTRAS.items()},
    }
