"""CPU seconds of Muon's steps against torch.optim.Muon, on the matrices of the demo's model; one run measures both.

    python benchmarks/muon.py [--steps N] [--json]

torch's Muon computes its directions in bfloat16, for which many CPUs have no instructions; ours computes them in
float32 on a CPU. One thread, best of five repeats.
"""

import argparse
import json
import time

import torch

from agentrl.trainer.muon import Muon

LAYERS = 2
SHAPES = [(128, 128), (64, 128), (64, 128), (128, 128), (384, 128), (384, 128), (128, 384)]  # of one layer
REPEATS = 5


def seconds(kind: type[torch.optim.Optimizer], steps: int) -> float:
    """CPU seconds of one step, best of the repeats."""
    made = torch.Generator().manual_seed(0)
    matrices = [torch.nn.Parameter(torch.randn(shape, generator=made)) for _ in range(LAYERS) for shape in SHAPES]
    for matrix in matrices:
        matrix.grad = torch.randn(matrix.shape, generator=made)
    optimiser = kind(matrices, lr=0.01)
    optimiser.step()
    found = []
    for _ in range(REPEATS):
        start = time.process_time()
        for _ in range(steps):
            optimiser.step()
        found.append((time.process_time() - start) / steps)
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    ours, theirs = seconds(Muon, given.steps), seconds(torch.optim.Muon, given.steps)
    result = {"ours_ms": 1000 * ours, "torch_ms": 1000 * theirs, "ratio": theirs / ours}
    if given.json:
        print(json.dumps(result))
    else:
        print(f"one step, {LAYERS} layers of width 128: {1000 * ours:.1f} ms, torch.optim.Muon {1000 * theirs:.1f} ms")
        print(f"torch takes {theirs / ours:.1f}x the CPU time")


if __name__ == "__main__":
    main()
