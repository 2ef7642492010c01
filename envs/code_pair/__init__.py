"""Code repair by two agents: one writes, one tests.

The writer (`main`) reads and changes the files of `code_repair`'s tasks and cannot run code. With `ask_tester` it sends
the present code to the tester, another agent, which plays `code_test` on this code: the tester reads the code, runs
tests, and reports. Hidden checks decide whether the writer solved the task, and whether the tester's report is right.
Both agents have the signal `format`: for the writer, 1 if it handed in; for the tester, 1 if it reported. `[reward]
name="m_grpo_reward"` with correct = "solved" and expert = "right" composes M-GRPO's rewards (arXiv:2511.13288).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agentrl.envs.code_pair.environment import EXPERTS, CodePair, agents, expert, prompt, tasks
from agentrl.envs.code_pair.writer import Config
from agentrl.envs.code_repair import facts, kind

__all__ = [
    "ERRING",
    "EXPERTS",
    "GYMNASIUM_IDS",
    "HELD_OUT_OPTIONS",
    "WAITS",
    "Config",
    "agents",
    "expert",
    "facts",
    "kind",
    "make",
    "prompt",
    "tasks",
]

ERRING = {"careless": 1}
WAITS = True  # a step that runs code waits for the sandbox
HELD_OUT_OPTIONS: Mapping[str, Any] = MappingProxyType({"split": "test"})
GYMNASIUM_IDS: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


def make(config: Config) -> CodePair:
    """An instance; ValueError if no sandbox works on this machine."""
    return CodePair(config)
