"""Several processes (ranks) that share the policies of one run: each rank holds a part of every policy.

Rank 0 sends messages, and every rank calls the named method of `Policies` on its parts. A message holds the name of the
method, small values as JSON and, if the method needs them, a graph and its credit as arrays. Nothing in a message is
code. agentrl starts a rank with `python -m agentrl.cluster.ranks STORE RANK SIZE DEVICE`.
"""

import json
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load as arrays_of, save as bytes_of

from agentrl.cluster.learner_group import READY, LearnerGroup, Place, joined
from agentrl.credit import Credit, PathCredit
from agentrl.graph import Paths, StepGraph, graph_from_bytes, graph_to_bytes
from agentrl.model import Weights
from agentrl.run import Policies, Stored, Vocabulary
from agentrl.settings import Settings
from agentrl.trainer import Annotated, Ranks

ARRAYS = ("advantage", "positive", "negative", "weight", "assigned", "token_advantage", "returns")


@dataclass(frozen=True, kw_only=True)
class Message:
    """What rank 0 sends to the other ranks.

    Attributes:
        call: name of a method of `Policies`, or `begin` or `end`.
        values: further arguments of the method, as JSON values.
        graph: the graph that is passed to the method; None if the method takes no graph.
        credit: the credit of this graph; None if the method takes no credit.
    """

    call: str
    values: Mapping[str, Any] = field(default_factory=dict)
    graph: StepGraph | None = None
    credit: Credit | None = None

    def encoded(self) -> bytes:
        """The message as bytes: length of the head (8 bytes), head as JSON, graph, credit."""
        graph = b"" if self.graph is None else graph_to_bytes(self.graph)
        credit = b"" if self.credit is None else bytes_of(_arrays(self.credit))
        head = {"call": self.call, "values": dict(self.values), "graph": len(graph), "credit": len(credit)}
        text = json.dumps(head).encode()
        return len(text).to_bytes(8, "little") + text + graph + credit

    @classmethod
    def decoded(cls, data: bytes) -> "Message":
        """The message that `encoded` turned into these bytes."""
        start = 8 + int.from_bytes(data[:8], "little")
        head = json.loads(data[8:start])
        middle = start + head["graph"]
        return cls(
            call=head["call"],
            values=head["values"],
            graph=graph_from_bytes(data[start:middle]) if head["graph"] else None,
            credit=_credit(arrays_of(data[middle:])) if head["credit"] else None,
        )


class LeadingPolicies(Policies):
    """The policies on rank 0. Each method of this class first sends a message, so that all ranks call the method.

    Args:
        settings, vocabularies, at: see `Policies`.
        group: the processes that share the policies; this class starts them.
    """

    def __init__(
        self, settings: Settings, vocabularies: Mapping[str, Vocabulary], at: Path | None, group: LearnerGroup
    ) -> None:
        self._group, self._ranks = group, group.start()
        words = {name: one._asdict() for name, one in vocabularies.items()}
        self._tell(
            "begin", settings=settings.shown(), vocabularies=words, at=None if at is None else str(at.absolute())
        )
        super().__init__(settings, vocabularies, at, self._ranks)

    def restart(self, stage: str) -> None:
        self._tell("restart", stage=stage)
        super().restart(stage)

    def imitate(self, graph: StepGraph, step: int) -> dict[str, float]:
        self._tell("imitate", graph=graph, step=step)
        return super().imitate(graph, step)

    def annotate(self, graph: StepGraph) -> Annotated:
        self._tell("annotate", graph=graph)
        return super().annotate(graph)

    def improve(self, graph: StepGraph, credit: Credit, iteration: int, spent: float = 0.0) -> dict[str, float]:
        self._tell("improve", graph=graph, credit=credit, iteration=iteration, spent=spent)
        return super().improve(graph, credit, iteration, spent)

    def weights(self) -> Weights:
        self._tell("weights")
        return super().weights()

    def save(self, part: Path) -> None:
        self._tell("save", part=str(part.absolute()))
        super().save(part)

    def restore(self, at: Path) -> Stored:
        self._tell("restore", at=str(at.absolute()))
        return super().restore(at)

    def end_with(self, updates: int) -> None:
        self._tell("end_with", updates=updates)
        super().end_with(updates)

    def close(self) -> None:
        self._tell("end")

    def _tell(self, call: str, graph: StepGraph | None = None, credit: Credit | None = None, **values: Any) -> None:
        if self._ranks.size > 1:
            self._group.tell(Message(call=call, values=values, graph=graph, credit=credit))


def follow(ranks: Ranks) -> None:
    """Hold this rank's parts of the policies and carry out the messages of rank 0, until the message `end` arrives."""
    policies: Policies | None = None
    while True:
        message = Message.decoded(ranks.broadcast())
        if message.call == "end":
            return
        if message.call == "begin":
            policies = begun(message.values, ranks)
        else:
            assert policies is not None
            carry_out(policies, message)


def follow_torchrun(settings: Settings, place: Place) -> None:
    """Call `follow` in a process that torchrun started as a rank above 0."""
    with LearnerGroup(settings) as group:
        follow(joined(group.device, place))


def begun(values: Mapping[str, Any], ranks: Ranks) -> Policies:
    """Make this rank's parts of the policies, as the message `begin` says."""
    settings = Settings(values["settings"], stored=True)
    if settings.tables.run.threads:
        torch.set_num_threads(settings.tables.run.threads)
    torch.manual_seed(settings.tables.run.seed)
    words = {
        name: Vocabulary(tuple(one["texts"]), tuple(one["entities"])) for name, one in values["vocabularies"].items()
    }
    at = values["at"]
    return Policies(settings, words, None if at is None else Path(at), ranks)


def carry_out(policies: Policies, message: Message) -> None:
    """Call the method that the message names on this rank's parts of the policies."""
    values, graph = message.values, message.graph
    match message.call:
        case "restart":
            policies.restart(values["stage"])
        case "imitate":
            assert graph is not None
            policies.imitate(graph, values["step"])
        case "annotate":
            assert graph is not None
            policies.annotate(graph)
        case "improve":
            assert graph is not None and message.credit is not None
            policies.improve(graph, message.credit, values["iteration"], values["spent"])
        case "weights":
            policies.weights()
        case "save":
            policies.save(Path(values["part"]))
        case "restore":
            policies.load_state_dict(policies.restore(Path(values["at"])).parts["policies"])
        case "end_with":
            policies.end_with(values["updates"])
        case unknown:
            raise AssertionError(f"no such call: {unknown}")


def _arrays(credit: Credit) -> dict[str, np.ndarray]:
    """The arrays of a credit that an update reads, by name."""
    found = {name: getattr(credit, name) for name in ARRAYS if getattr(credit, name) is not None}
    found |= {f"part/{name}": x for name, x in credit.parts.items()}
    found |= {f"token_part/{name}": x for name, x in credit.token_parts.items()}
    if credit.on_paths is not None:
        on, positive, negative, weight = credit.on_paths
        paths = {"row": on.row, "leaf": on.leaf, "positive": positive, "negative": negative, "weight": weight}
        found |= {f"path/{name}": x for name, x in paths.items()}
    return {name: np.ascontiguousarray(x) for name, x in found.items()}


def _credit(arrays: Mapping[str, np.ndarray]) -> Credit:
    named: dict[str, dict[str, np.ndarray]] = {"": {}, "part": {}, "token_part": {}, "path": {}}
    for name, x in arrays.items():
        kind, _, rest = name.partition("/") if "/" in name else ("", "", name)
        named[kind][rest] = x
    path, columns = named["path"], named[""]
    return Credit(
        advantage=columns.pop("advantage"),
        positive=columns.pop("positive"),
        negative=columns.pop("negative"),
        weight=columns.pop("weight"),
        assigned=columns.pop("assigned"),
        token_advantage=columns.pop("token_advantage", None),
        returns=columns.pop("returns", None),
        parts=named["part"],
        token_parts=named["token_part"],
        on_paths=PathCredit(Paths(path.pop("row"), path.pop("leaf")), **path) if path else None,
    )


def _end_with_the_leader() -> None:
    """End this process when the pipe from rank 0 is closed, because rank 0 has then ended."""
    sys.stdin.buffer.read()
    os._exit(0)


def main(words: list[str]) -> None:
    """Run as a rank that agentrl started. `words` are STORE, RANK, SIZE and DEVICE of the command line."""
    threading.Thread(target=_end_with_the_leader, daemon=True).start()
    store, rank, size, device = words
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    place = Place(int(rank), int(size), int(rank))
    follow(joined(torch.device(device), place, Path(store)))


if __name__ == "__main__":
    main(sys.argv[1:])
