"""Rollouts: agents, episodes, branches and batches, and the step graph of their records."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentrl.rollout.actor import Actor, PolicyActor
from agentrl.rollout.agent_calls import reply_from, reply_of
from agentrl.rollout.agents import Agent, Crew, rows_of
from agentrl.rollout.baselines import ExpertActor, Random, Scripted, expert_actor, read_actions
from agentrl.rollout.batches import Budget, Collected, collect
from agentrl.rollout.branch import Opening, OpeningTurn, Point, StateMismatch
from agentrl.rollout.context import Ask, ContextPolicy, History, appended, continued, fresh
from agentrl.rollout.demonstrations import Demonstrating, demonstration_of, with_demonstrations
from agentrl.rollout.episode import play, play_starts
from agentrl.rollout.expansion import Branch, Expansion, RolloutMethod, RolloutOptions, adopt, lost
from agentrl.rollout.faults import fault_counts, stop_on_faults
from agentrl.rollout.guide import Demonstrate, Guide, GuideFile, Shown, Teacher, Teaching
from agentrl.rollout.hints import Hinting, Taught, Telling, taught
from agentrl.rollout.player import Player, Start, TooManyFaults
from agentrl.rollout.program import AgentTask, Program, arrange, program_path, share_outcome
from agentrl.rollout.provision import Provision, Wanted, groups_to_begin
from agentrl.rollout.record_graph import build_graph, rows_of_graph
from agentrl.rollout.records import EpisodeRecord, StepRecord, joined, same_state
from agentrl.rollout.replay import Fresh, Joins, Replay, ReplayFile, ReplayOptions, Stored, fresh_part
from agentrl.rollout.sampler import Allocator, Draw, Follower, Sampler, SamplerFile
from agentrl.rollout.successes import Success, by_group, success_rate

if TYPE_CHECKING:
    from agentrl.rollout.program.endpoint import Endpoint
    from agentrl.rollout.program.protocol import Refusal
    from agentrl.rollout.program.recorder import Recorder

__all__ = [
    "Actor",
    "Agent",
    "AgentTask",
    "Allocator",
    "Ask",
    "Branch",
    "Budget",
    "Collected",
    "ContextPolicy",
    "Crew",
    "Demonstrate",
    "Demonstrating",
    "Draw",
    "Endpoint",
    "EpisodeRecord",
    "Expansion",
    "ExpertActor",
    "Follower",
    "Fresh",
    "Guide",
    "GuideFile",
    "Hinting",
    "History",
    "Joins",
    "Opening",
    "OpeningTurn",
    "Player",
    "Point",
    "PolicyActor",
    "Program",
    "Provision",
    "Random",
    "Recorder",
    "Refusal",
    "Replay",
    "ReplayFile",
    "ReplayOptions",
    "RolloutMethod",
    "RolloutOptions",
    "Sampler",
    "SamplerFile",
    "Scripted",
    "Shown",
    "Start",
    "StateMismatch",
    "StepRecord",
    "Stored",
    "Success",
    "Taught",
    "Teacher",
    "Teaching",
    "Telling",
    "TooManyFaults",
    "Wanted",
    "adopt",
    "appended",
    "arrange",
    "build_graph",
    "by_group",
    "collect",
    "continued",
    "demonstration_of",
    "expert_actor",
    "fault_counts",
    "fresh",
    "fresh_part",
    "groups_to_begin",
    "joined",
    "lost",
    "play",
    "play_starts",
    "program_path",
    "read_actions",
    "reply_from",
    "reply_of",
    "rows_of",
    "rows_of_graph",
    "same_state",
    "share_outcome",
    "stop_on_faults",
    "success_rate",
    "taught",
    "with_demonstrations",
]

_LATER = {  # name -> its module, which holds an HTTP server and is imported late, because most runs need no server
    "Endpoint": "agentrl.rollout.program.endpoint",
    "Recorder": "agentrl.rollout.program.recorder",
    "Refusal": "agentrl.rollout.program.protocol",
}


def __getattr__(name: str) -> Any:
    """A public name whose module is imported at the first use of the name."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
