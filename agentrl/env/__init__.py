"""What an environment is, how it speaks, and where its instances run."""

from agentrl.env import hooks, panels
from agentrl.env.checked import checked_observation, checked_result
from agentrl.env.hooks import ENDLESS
from agentrl.env.limits import Limits
from agentrl.env.players import random_share
from agentrl.env.pool import Handle, Pool, Slot
from agentrl.env.prompt import Bare, Parsed, Past, Plain, Prompt, Shown, continues, stops
from agentrl.env.protocol import Delegates, Env, Expert, Judges, Move, Snapshots, Verdict, Writes
from agentrl.env.threads import ThreadPool
from agentrl.env.time_limit import deadline
from agentrl.types import Errand, Message, Observation, Reply, Status, StepResult, Task

__all__ = [
    "ENDLESS",
    "Bare",
    "Delegates",
    "Env",
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
    "checked_observation",
    "checked_result",
    "continues",
    "deadline",
    "hooks",
    "panels",
    "random_share",
    "stops",
]
