"""Testing code: read a small program, write and run tests, and say whether it is right.

The repositories are those of `code_repair`'s tasks, each once with its mistakes and once without them. A report says
that the code passes or fails, and it is right if the hidden checks say the same. Reports on code that the writer of
`code_pair` sends are judged in the same way.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agentrl.envs.code_repair import facts
from agentrl.envs.code_test.environment import EXPERTS, CodeTest, expert, kind, prompt, tasks
from agentrl.envs.code_test.tester import Config

__all__ = [
    "ERRING",
    "EXPERTS", "GYMNASIUM_IDS", "HELD_OUT_OPTIONS", "WAITS", "Config", "expert", "facts", "kind", "make", "prompt",
    "tasks",
]  # fmt: skip

ERRING = {"careless": 1}
WAITS = True  # a step that runs code waits for the sandbox
HELD_OUT_OPTIONS: Mapping[str, Any] = MappingProxyType({"split": "test"})
GYMNASIUM_IDS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"agentrl/CodeTest-v0": {}})


def make(config: Config) -> CodeTest:
    """An instance; ValueError if no sandbox works on this machine."""
    return CodeTest(config)
