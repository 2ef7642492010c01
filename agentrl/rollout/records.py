"""Records of played steps and episodes."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from agentrl.graph import PLAYED, success_of
from agentrl.rollout.branch import OpeningTurn, Point
from agentrl.types import Generation, Message, Observation, Status, Task

NUMERIC = (bool, int, float, np.bool_, np.integer, np.floating)


@dataclass(kw_only=True, eq=False)
class StepRecord:
    """One step.

    Attributes:
        observation: the observation before the answer.
        added: [T] int64, the prompt tokens that the step adds.
        continues: do the tokens `added` continue the path of an earlier step? If not, they are a fresh prompt.
        follows: the step whose path the tokens `added` continue; None for the episode's previous step. Programs may
            have several conversations in one episode (`agentrl.programs`).
        generation: the answer.
        action: the action in the answer.
        valid: was the answer in the right format?
        status: see `Status`.
        reward, terminated, truncated, info: the environment's result, see `StepResult`.
        value: Monte Carlo estimate of the value of the state before the step; NaN if there is none.
        calls: number of tool calls that the answer asks for.
        missing: the parts of the format, other than the action, that the answer lacks.
        thought: is the answer a thought without an action (`agentrl.env.Parsed`)?
        rewrites: the answer was the model's new memory and was not sent to the environment.
        asked: the messages of the whole prompt.
        answer_s: wall-clock seconds from the request to the answer, including the time during which the engine serves
            other episodes; NaN if the player is not timed or a program plays the episode.
        env_s: wall-clock seconds of the environment's step, including the episodes of the agents that the environment
            calls; NaN in the same cases as `answer_s`, and if the action was not carried out.
    """

    observation: Observation
    added: np.ndarray
    continues: bool
    generation: Generation
    action: str
    valid: bool
    status: Status
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    value: float = math.nan
    calls: int = 0
    missing: str = ""
    thought: bool = False
    rewrites: bool = False
    asked: Sequence[Message] = ()
    answer_s: float = math.nan
    env_s: float = math.nan

    @property
    def cut(self) -> bool:
        """Did a token limit cut off the answer? The length of a new memory is an option of the context, so it is not
        counted."""
        return self.generation.finish == "length" and not self.rewrites

    follows: "StepRecord | None" = None


@dataclass(kw_only=True, eq=False)
class EpisodeRecord:
    """One agent's chain in one rollout, from the task's beginning to the chain's end.

    A branch shares the step objects `steps[:inherited]` with the chain that it left.

    Attributes:
        task: the task.
        group: index of the task in its batch; copies of one task share it.
        copy: number of the chain in its group, from 0. A called agent's chain has the number of its caller's chain.
        agent, policy: names of the agent and of the actor that answers for it.
        caller: the step that called this agent; None for the agent that the task was given to.
        called: the chains of the agents that this chain called, in the order of the calls.
        beside: the chain is a part of its caller's episode, was played at the same time, and has the outcome of that
            episode (`agentrl.programs.chains`).
        tree: number of the chain's tree in the group. None puts the chain into a tree of its own.
        kind: kind of the steps that only this chain played: PLAYED, CANDIDATE or PROBE.
        steps: the steps, in the order of time.
        inherited: number of steps at the beginning of `steps` that another chain played.
        final: the last observation.
        tail: [T] int64, the tokens of the last observation, which are never trained.
        tail_continues: do the tokens of `tail` continue the path of the last step? If not, they are a fresh prompt.
        ending: how the chain ended; OK for a chain that was stopped and can be continued.
        fault: the fault of the environment or of a score that ended the chain, for reports.
        reason: for reports, why the last request got no answer (if that ended the episode), or why a program failed.
        attempts: number of tries (1 if the environment never failed).
        seconds: wall-clock seconds of all tries; not part of the graph.
        tokens: number of tokens sampled for this chain and for the agents that it called, in failed tries too. Steps
            that another chain played do not count.
        actions: number of actions carried out, including the actions of called agents and of failed tries. Each tool
            call of an answer is one action, and so is an answer without a call. In an episode that a program plays,
            each answer of the model counts as one action.
        usage: sums of the `usage` of the chain's generations, including failed tries but not the called agents.
        replayed: number of actions carried out again to reach the chain's branch point or the end of its opening, in
            failed tries too.
        points: turn -> the point before the turn, from which the chain can be branched; empty without `Start.remember`.
        temperature: sampling temperature of the chain; None for `sampling.temperature`.
        words: text at the end of the system message of every prompt; see `agentrl.rollout.sampler.Draw`.
        opening: the turns of an earlier episode with which the chain started; these turns are not steps of this chain.
        reprompted: the prompts of the steps were replaced after sampling (`agentrl.rollout.hints.reprompt`).
        keeps_words: the prompts should have been replaced by those without `words`, and could not be.
    """

    task: Task
    group: int
    copy: int
    agent: str = "agent"
    policy: str = "policy"
    caller: "StepRecord | None" = None
    called: "list[EpisodeRecord]" = field(default_factory=list)
    beside: bool = False
    tree: int | None = None
    kind: int = PLAYED
    steps: list[StepRecord] = field(default_factory=list)
    inherited: int = 0
    final: Observation | None = None
    tail: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    tail_continues: bool = True
    ending: Status = Status.DONE
    fault: str = ""
    reason: str = ""
    attempts: int = 1
    seconds: float = 0.0
    tokens: int = 0
    usage: dict[str, float] = field(default_factory=dict)
    actions: int = 0
    replayed: int = 0
    points: dict[int, Point] = field(default_factory=dict)
    temperature: float | None = None
    words: str = ""
    opening: Sequence[OpeningTurn] = ()
    reprompted: bool = False
    keeps_words: bool = False

    @property
    def guided(self) -> bool:
        """Did a guide or a sampler give this chain an opening or words? Success rates leave such chains out."""
        return bool(self.opening or self.words)

    def spend(self, generation: Generation) -> None:
        """Add the sampled tokens and the `usage` of an answer to `tokens` and `usage`."""
        self.tokens += len(generation.token_ids)
        for name, count in generation.usage.items():
            self.usage[name] = self.usage.get(name, 0.0) + count

    @property
    def own(self) -> list[StepRecord]:
        """The steps that no other chain played."""
        return self.steps[self.inherited :]

    @property
    def score(self) -> float:
        """Sum of the rewards of all steps, shared steps included."""
        return sum(step.reward for step in self.steps)

    def chains(self) -> "Iterator[EpisodeRecord]":
        """This chain and the chains of the agents that it called, callers first."""
        yield self
        for chain in self.called:
            yield from chain.chains()

    @property
    def success(self) -> bool:
        """Did the chain succeed? See `agentrl.graph.success_of`."""
        verdict = as_number(self.steps[-1].info.get("success")) if self.steps else math.nan
        return bool(success_of(verdict, self.score))


def as_number(value: object) -> float:
    """An entry of a step's `info` as a number; NaN if it is not numeric."""
    if not isinstance(value, NUMERIC):
        return math.nan
    try:
        return float(value)
    except OverflowError:  # the integer is too large for a float
        return math.inf if value > 0 else -math.inf


def same_state(observation: Observation) -> str:
    """The string that is equal for two observations of the same state."""
    return observation.state_key or observation.text


def joined(info: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A step's info updated with the entries of `more`; the signals of `info` and `more` are merged."""
    signals = {**info.get("signals", {}), **more.get("signals", {})}
    return {**info, **more, **({"signals": signals} if signals else {})}
