"""Code repair by two agents: one writes, one tests.

The writer (`main`) reads and changes the files of `code_repair`'s tasks and cannot run anything; `ask_tester` sends the
code as it is to the tester, an agent of its own that plays `code_test` on it: it reads, writes and runs tests, and
reports. Hidden checks decide whether the code is solved, and whether a report was true. Both agents report the signal
`format` (something was handed in, or reported); `[reward] name="m_grpo_reward"` with correct = "solved" and expert =
"right" composes M-GRPO's rewards (arXiv:2511.13288).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agentrl.envs.code_pair.environment import EXPERTS, CodePair, agents, expert, prompt, tasks
from agentrl.envs.code_pair.writer import Config
from agentrl.envs.code_repair import facts, kind

__all__ = [
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

WAITS = True  # for a sandbox
HELD_OUT_OPTIONS: Mapping[str, Any] = MappingProxyType({"split": "test"})
GYMNASIUM_IDS: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


def make(config: Config) -> CodePair:
    """An instance; ValueError if no sandbox works on this machine."""
    return CodePair(config)
