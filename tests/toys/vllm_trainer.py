"""vLLM's own trainer side of a weight transfer, with agentrl's client and source, against a server of the protocol.

A queue stands for NCCL. A test runs it with the interpreter of the environment that has vLLM; it prints what was seen.
"""

import json
from types import SimpleNamespace
from typing import Any

import torch
import vllm.distributed.weight_transfer.nccl_engine as real

from agentrl.engines.vllm import transfer as vllm_transfer
from agentrl.engines.vllm.client import VllmServer
from tests.toys.vllm_server import FakeServer


class Brain:
    """Keeps what came."""

    vocabulary = 5

    def receive(self, state: dict[str, Any]) -> None:
        self.state = dict(state)


class Tied(torch.nn.Module):
    """A model whose head is tied to its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.embedding = torch.nn.Linear(3, 4).half(), torch.nn.Embedding(5, 3)
        self.lm_head = torch.nn.Linear(3, 5, bias=False)
        self.lm_head.weight = self.embedding.weight


def main() -> None:
    """Two transfers in one group."""
    brain, model = Brain(), Tied()
    fake = FakeServer(brain).start()

    def produce(iterator: Any, group: Any, src: int, post_iter_func: Any, **sizes: int) -> None:
        for item in iterator:
            fake.wire.put(post_iter_func(item).clone())

    real.open_trainer_endpoint = lambda info: SimpleNamespace(destroy=lambda: None)
    real.packed_nccl_broadcast_producer = produce
    server = VllmServer(fake.url, {}, 10.0)
    transfer = vllm_transfer.NcclTransfer("0.32.0")
    equal = []
    for _ in range(2):
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(1)
        server.receive(lambda: transfer.send(server, model), "run-1-1")
        state = model.state_dict()
        equal.append(set(brain.state) == set(state) and all(torch.equal(brain.state[k], v) for k, v in state.items()))
    transfer.close()
    fake.stop()
    print(json.dumps({"group": fake.group, "equal": equal, "paths": [path for path, _ in fake.calls]}))


if __name__ == "__main__":
    main()
