"""Environments: their protocol, their prompts, and the pools that run their instances."""

from agentrl.env.checked import checked_observation, checked_result
from agentrl.env.foreign import ForeignEnv, ForeignProgram, start_python
from agentrl.env.hooks import (
    ENDLESS,
    RANDOM,
    Asked,
    EnvironmentFile,
    Offers,
    benchmark_of,
    check_expert,
    facts_of,
    kind_of,
    plays_at_random,
    prompt_of,
    tasks_of,
)
from agentrl.env.limits import Limits
from agentrl.env.origin import raised_at
from agentrl.env.panels import panel_hash, panel_tasks, read_panel
from agentrl.env.places import make_pool, place_of, pool_within
from agentrl.env.players import random_share
from agentrl.env.pool import Handle, Pool, Slot
from agentrl.env.prompt import (
    Bare,
    Parsed,
    Past,
    Plain,
    Prompt,
    Shown,
    action_line,
    continues,
    native,
    rewords,
    stops,
    without_thought,
)
from agentrl.env.protocol import Delegates, Env, Expert, Judges, Move, Snapshots, Verdict, Writes
from agentrl.env.published import PublishedFile, published_report
from agentrl.env.threads import ThreadPool
from agentrl.env.time_limit import deadline
from agentrl.types import Errand, Message, Observation, Reply, Status, StepResult, Task

__all__ = [
    "ENDLESS",
    "RANDOM",
    "Asked",
    "Bare",
    "Delegates",
    "Env",
    "EnvironmentFile",
    "Errand",
    "Expert",
    "ForeignEnv",
    "ForeignProgram",
    "Handle",
    "Judges",
    "Limits",
    "Message",
    "Move",
    "Observation",
    "Offers",
    "Parsed",
    "Past",
    "Plain",
    "Pool",
    "Prompt",
    "PublishedFile",
    "Reply",
    "Shown",
    "Slot",
    "Snapshots",
    "Status",
    "StepResult",
    "Task",
    "ThreadPool",
    "Verdict",
    "Writes",
    "action_line",
    "benchmark_of",
    "check_expert",
    "checked_observation",
    "checked_result",
    "continues",
    "deadline",
    "facts_of",
    "kind_of",
    "make_pool",
    "native",
    "panel_hash",
    "panel_tasks",
    "place_of",
    "plays_at_random",
    "pool_within",
    "prompt_of",
    "published_report",
    "raised_at",
    "random_share",
    "read_panel",
    "rewords",
    "start_python",
    "stops",
    "tasks_of",
    "without_thought",
]
