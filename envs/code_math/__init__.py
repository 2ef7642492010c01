"""Math problems with a Python interpreter as the tool, and answers that are checked.

Generated in four levels, or from files such as GSM8K (arXiv:2110.14168), MATH (arXiv:2103.03874) and DAPO-Math. The
conventions of ToRL (arXiv:2503.23383) and ReTool (arXiv:2504.11536) are options. A lost sandbox is `env_error`.

| piece | module |
| --- | --- |
| problems, and the columns of files | `problems` |
| is an answer right | `answers` |
| the tool and the rewards | `problem` |
| environment, prompts, players | `environment` |
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agentrl.envs.code_math.environment import EXPERTS, CodeMath, expert, kind, prompt, read_row, tasks
from agentrl.envs.code_math.problem import Config, runner_of
from agentrl.tool import runner_facts

__all__ = [
    "EXPERTS", "GYMNASIUM_IDS", "HEAVY", "HELD_OUT_OPTIONS", "REFERENCE", "WAITS", "Config", "expert", "facts", "kind",
    "make", "prompt", "read_row", "tasks",
]  # fmt: skip

HEAVY = False
REFERENCE = "expert"
WAITS = True  # a step waits for the sandbox, from 30 ms up to the time-out
SMALL_MODEL: Mapping[str, Any] = {"prompt": "compact"}
HELD_OUT_OPTIONS: Mapping[str, Any] = MappingProxyType({"split": "test"})
GYMNASIUM_IDS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"agentrl/CodeMath-v0": {}})


def facts(config: Config) -> Mapping[str, str]:
    """Which sandbox runs the code, and which limits it does not hold."""
    return runner_facts(runner_of(config))


def make(config: Config) -> CodeMath:
    """An instance; ValueError if no sandbox works on this machine."""
    return CodeMath(config)
