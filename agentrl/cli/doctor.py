"""`agentrl doctor [--json]`: what is installed here, what each extra would add, and what this machine can run."""

import json
import os
import re
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from agentrl.cli._parser import Parser
from agentrl.run import versions

DISTRIBUTION = "agentrl-stepgraph"
NEEDED = re.compile(r"(?P<package>[\w.-]+).*; extra == ['\"](?P<extra>[\w-]+)['\"]")  # a line of our own metadata


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
        said = "there" if there else f"missing: pip install '{DISTRIBUTION}[{extra}]'"
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
        "extras": {extra: all(map(installed, packages)) for extra, packages in extras().items()},
    }


def extras() -> dict[str, list[str]]:
    """Each extra for users, and the packages it installs."""
    found: dict[str, list[str]] = {}
    for line in metadata.requires(DISTRIBUTION) or ():
        needed = NEEDED.fullmatch(line)
        if needed and needed["extra"] != "dev":
            found.setdefault(needed["extra"], []).append(needed["package"])
    return found


def installed(package: str) -> bool:
    """Is a distribution of this name there?"""
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
