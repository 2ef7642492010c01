"""`agentrl doctor [--json]`: list installed versions, installed and missing extras, and what this machine can run."""

import json
import os
import re
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from agentrl.cli._parser import Parser
from agentrl.run import versions

DISTRIBUTION = "agentrl-stepgraph"
NEEDED = re.compile(r"(?P<package>[\w.-]+).*; extra == ['\"](?P<extra>[\w-]+)['\"]")  # a requirement in our metadata


def main(words: Sequence[str]) -> int:
    """See the module."""
    parser = Parser("agentrl doctor", __doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(words)
    machine = examine()
    if arguments.json:
        print(json.dumps(machine))
        return 0
    for name, value in machine["versions"].items():
        print(f"{name:20} {value}")
    print(f"{'cores':20} {machine['cores']}")
    print(f"{'accelerator':20} {machine['accelerator']}")
    for extra, there in machine["extras"].items():
        state = "there" if there else f"missing: pip install '{DISTRIBUTION}[{extra}]'"
        print(f"extra {extra:14} {state}")
    return 0


def examine() -> dict[str, Any]:
    """Versions of packages, number of cores, accelerator, and whether each extra is installed."""
    import torch

    cuda = torch.cuda.get_device_name(0) if torch.cuda.is_available() else "none: models run on the CPU"
    return {
        "versions": versions(),
        "cores": os.cpu_count(),
        "accelerator": cuda,
        "extras": {extra: all(map(installed, packages)) for extra, packages in extras().items()},
    }


def extras() -> dict[str, list[str]]:
    """Each extra for users, and the packages that it installs."""
    packages: dict[str, list[str]] = {}
    for line in metadata.requires(DISTRIBUTION) or ():
        requirement = NEEDED.fullmatch(line)
        if requirement and requirement["extra"] != "dev":
            packages.setdefault(requirement["extra"], []).append(requirement["package"])
    return packages


def installed(package: str) -> bool:
    """Is a distribution of this name installed?"""
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True
