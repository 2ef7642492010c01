"""Math problems: the agent may run Python code, and its final answer is compared with the right answer.

Problems are generated in four levels, or read from files such as GSM8K (arXiv:2110.14168), MATH (arXiv:2103.03874) and
DAPO-Math. Options choose the conventions of ToRL (arXiv:2503.23383) and ReTool (arXiv:2504.11536) for calls and
rewards. If the sandbox that runs the code fails, the step gets the status `env_error`.

| piece | module |
| --- | --- |
| problems, and the columns of files | `problems` |
| the answer in a text; the comparison with the right answer | `extraction`; `answers` |
| one spelling of an answer, its parts, units and value | `spelling`, `forms`, `units`, `values` |
| the comparison of two answers; choices; math-verify in a process | `equality`; `choices`; `judge`, `judge_worker` |
| right answers in other spellings, for checks | `rewritten` |
| options, the tool, the rewards | `problem` |
| environment, prompts, players | `environment` |
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agentrl.envs.code_math.environment import EXPERTS, CodeMath, expert, kind, prompt, read_row, tasks, unanswerable
from agentrl.envs.code_math.problem import Config, runner_of
from agentrl.envs.code_math.rewritten import spellings
from agentrl.tool import runner_facts

__all__ = [
    "ERRING",
    "EXPERTS", "GYMNASIUM_IDS", "HEAVY", "HELD_OUT_OPTIONS", "REFERENCE", "WAITS", "Config", "expert", "facts", "kind",
    "make", "prompt", "read_row", "spellings", "tasks", "unanswerable",
]  # fmt: skip

ERRING: dict[str, int] = {}
HEAVY = False
REFERENCE = "expert"
WAITS = True  # a step that runs code waits for the sandbox, 30 ms or longer
SMALL_MODEL: Mapping[str, Any] = {"prompt": "compact"}
HELD_OUT_OPTIONS: Mapping[str, Any] = MappingProxyType({"split": "test"})
GYMNASIUM_IDS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"agentrl/CodeMath-v0": {}})


def facts(config: Config) -> Mapping[str, str]:
    """The name of the sandbox that runs the code, and the limits that it does not enforce strictly."""
    return runner_facts(runner_of(config))


def make(config: Config) -> CodeMath:
    """An instance; ValueError if no sandbox works on this machine."""
    return CodeMath(config)
