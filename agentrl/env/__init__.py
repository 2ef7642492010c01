"""Environments: their protocol, their prompts, and the pools that run their instances."""

from agentrl.env.checked import checked_observation, checked_result
from agentrl.env.hooks import (
    ENDLESS,
    EnvironmentFile,
    benchmark_of,
    check_expert,
    facts_of,
    kind_of,
    prompt_of,
    tasks_of,
)
from agentrl.env.limits import Limits
from agentrl.env.panels import panel_hash, panel_tasks, read_panel
from agentrl.env.places import make_pool, pool_within
from agentrl.env.players import random_share
from agentrl.env.pool import Handle, Pool, Slot
from agentrl.env.prompt import Bare, Parsed, Past, Plain, Prompt, Shown, action_line, continues, stops
from agentrl.env.protocol import Delegates, Env, Expert, Judges, Move, Snapshots, Verdict, Writes
from agentrl.env.threads import ThreadPool
from agentrl.env.time_limit import deadline
from agentrl.types import Errand, Message, Observation, Reply, Status, StepResult, Task

__all__ = [
    "ENDLESS",
    "Bare",
    "Delegates",
    "Env",
    "EnvironmentFile",
    "Errand",
    "Expert",
    "Handle",
    "Judges",
    "Limits",
    "Message",
    "Move",
    "Observation",
    "Parsed",
    "Past",
    "Plain",
    "Pool",
    "Prompt",
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
    "panel_hash",
    "panel_tasks",
    "pool_within",
    "prompt_of",
    "random_share",
    "read_panel",
    "stops",
    "tasks_of",
]
