"""Alternates reinforcement learning and imitation: an expert plays the tasks that fail in every copy, and the policy
imitates the expert.

Formula: as soon as the buffer holds `episodes` demonstrations or more, the policy imitates all of them.

Source: ReLIFT, arXiv:2506.07527 (interleaved online fine-tuning for the hardest questions): while the policy learns by
reinforcement, questions that no rollout solves go into a buffer with a demonstration each. When the buffer holds enough
demonstrations for a batch, one step of fine-tuning on them follows, the buffer is emptied, and reinforcement learning
goes on. So the more tasks fail, the more often the policy imitates.

Compared with the released code (relift/verl/verl/relift/trainer.py): in the released code and, with patience=1, here,
the questions are those of groups without a right answer. The released code fine-tunes when `sft_data_size` questions
are in the buffer; it takes the newest of them, and the others stay in the buffer. Here the policy imitates the whole
buffer.

The demonstrations are episodes of `warmup.expert`, written in the form in which the policy answers, and trained under
the allowed sets that sampling uses. The policy imitates them as the warm-up does (`warmup.minibatches` optimiser steps
per pass), with the learning rate of `[optim]`. They belong to no group, so statistics and credit never see them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, Field

from agentrl.graph import StepGraph, concatenate, graph_from_bytes, graph_to_bytes
from agentrl.rollout import Draw, EpisodeRecord, build_graph, by_group, lost, success_rate
from agentrl.types import Task

PAPER = "ReLIFT, arXiv:2506.07527"


class Config(BaseModel, frozen=True, extra="forbid"):
    """See the module.

    Attributes:
        episodes: number of demonstrations in the buffer at which the policy imitates the buffer.
        patience: how many times in a row all copies of a task must fail before the expert plays the task.
    """

    episodes: int = Field(16, ge=1)
    patience: int = Field(1, ge=1)


class Interleave:
    """See the module.

    Attributes:
        failed: key of a task -> number of times in a row that all its copies failed.
        buffer: demonstrations that wait for a lesson, by the key of their task.
        unsolved: keys of tasks that the expert did not solve.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.failed: dict[str, int] = {}
        self.buffer: dict[str, StepGraph] = {}
        self.unsolved: set[str] = set()

    def wanted(self, draws: Sequence[Draw]) -> list[Task]:
        """Tasks of the batch that failed `patience` times in a row and have no demonstration in the buffer yet."""
        tasks = {
            draw.task.key: draw.task for draw in draws if self.failed.get(draw.task.key, 0) >= self.config.patience
        }
        return [task for key, task in tasks.items() if key not in self.buffer and key not in self.unsolved]

    def shown(self, records: Sequence[EpisodeRecord]) -> None:
        """Take the expert's episodes. A task that the expert did not solve is not imitated and not asked for again."""
        for record in records:
            if record.success and not lost(record):
                self.buffer[record.task.key] = build_graph([record])
            else:
                self.unsolved.add(record.task.key)

    def begin(self, draws: Sequence[Draw]) -> list[Draw]:
        """The draws as they are: rollouts have no help."""
        return list(draws)

    def observe(self, records: Sequence[EpisodeRecord]) -> None:
        """Count how many times in a row each task failed in every copy."""
        for own in by_group(records).values():
            key = own[0].task.key
            if success_rate(own) > 0:
                self.failed.pop(key, None)
            else:
                self.failed[key] = self.failed.get(key, 0) + 1

    def lesson(self) -> StepGraph | None:
        """The buffer, which is then emptied; None if it holds fewer than `episodes` demonstrations.

        The expert plays these tasks again only if they fail again.
        """
        if len(self.buffer) < self.config.episodes:
            return None
        graphs = [*self.buffer.values()]
        for key in self.buffer:
            self.failed.pop(key, None)
        self.buffer = {}
        return concatenate(graphs)

    def state_dict(self) -> dict[str, Any]:
        """The buffer and the counts, as a checkpoint stores them."""
        stored = {key: np.frombuffer(graph_to_bytes(graph), np.uint8).copy() for key, graph in self.buffer.items()}
        return {"failed": dict(self.failed), "buffer": stored, "unsolved": sorted(self.unsolved)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the buffer and the counts of a checkpoint."""
        self.failed = {key: int(n) for key, n in state["failed"].items()}
        self.buffer = {key: graph_from_bytes(bytes(data)) for key, data in state["buffer"].items()}
        self.unsolved = set(state["unsolved"])


def make(config: Config, seed: int) -> Interleave:
    """See `agentrl.rollout.guide`; nothing is drawn at random."""
    return Interleave(config)


def expert(config: Config) -> bool:
    """Always True: the guide asks for episodes of the expert."""
    return True
