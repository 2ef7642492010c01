"""Rollouts: agents, episodes, branches and batches, and the step graph of their records."""

from agentrl.rollout.actor import Actor, PolicyActor
from agentrl.rollout.agent_calls import reply_from, reply_of
from agentrl.rollout.agents import Agent, Crew, rows_of
from agentrl.rollout.baselines import ExpertActor, Random, Scripted, expert_actor, read_actions
from agentrl.rollout.batches import Budget, Collected, collect
from agentrl.rollout.branch import Point, StateMismatch
from agentrl.rollout.context import Ask, ContextPolicy, History, appended, continued, fresh
from agentrl.rollout.episode import fault_counts, joined, play, play_starts, stop_on_faults
from agentrl.rollout.expansion import Branch, Expansion, RolloutMethod, RolloutOptions, adopt, lost
from agentrl.rollout.player import Player, Start, TooManyFaults
from agentrl.rollout.provision import Provision, Wanted, groups_to_begin
from agentrl.rollout.record_graph import build_graph
from agentrl.rollout.records import EpisodeRecord, StepRecord, same_state
from agentrl.rollout.sampler import Sampler, SamplerFile

__all__ = [
    "Actor",
    "Agent",
    "Ask",
    "Branch",
    "Budget",
    "Collected",
    "ContextPolicy",
    "Crew",
    "EpisodeRecord",
    "Expansion",
    "ExpertActor",
    "History",
    "Player",
    "Point",
    "PolicyActor",
    "Provision",
    "Random",
    "RolloutMethod",
    "RolloutOptions",
    "Sampler",
    "SamplerFile",
    "Scripted",
    "Start",
    "StateMismatch",
    "StepRecord",
    "TooManyFaults",
    "Wanted",
    "adopt",
    "appended",
    "build_graph",
    "collect",
    "continued",
    "expert_actor",
    "fault_counts",
    "fresh",
    "groups_to_begin",
    "joined",
    "lost",
    "play",
    "play_starts",
    "read_actions",
    "reply_from",
    "reply_of",
    "rows_of",
    "same_state",
    "stop_on_faults",
]
