"""What one message weighs: ResNet-20 for CIFAR-10 (272 474 parameters), every compressor.

    python -m benchmarks.message_sizes

Counts the buffers that a ring of three really exchanges, and compares them with `nbytes(layout)`.
Writes docs/results/message_sizes.json.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

import gossamer
from benchmarks.record import write
from gossamer.algorithms import Algorithm, Choco, PowerGossip
from gossamer.compress.layout import Layout
from gossamer.tasks.models import resnet

SPECS = [
    "identity",
    "fp16",
    "fp8",
    "int8",
    "qsgd:8",
    "qsgd:4",
    "qsgd:2",
    "qsgd:1",
    "sign",
    "topk:0.5",
    "topk:0.1",
    "topk:0.01",
    "topk:0.01:fp16",
    "topk:0.01:qsgd:4",
    "randomk:0.1",
    "randomk:0.01",
    "lowrank:1",
    "lowrank:2",
    "lowrank:4",
]


def resnet20() -> dict[str, tuple[int, ...]]:
    """Return the shapes of ResNet-20's parameters."""
    return {name: tuple(p.shape) for name, p in resnet(20).named_parameters()}


def bytes_a_message(algorithm: Algorithm, rounds: int) -> list[int]:
    """Return the bytes a worker sends to one neighbour in each of the first rounds."""
    rng = torch.Generator().manual_seed(0)
    starts = [{n: torch.randn(s, generator=rng) for n, s in resnet20().items()} for _ in range(3)]
    run = gossamer.Simulation(starts, "ring", algorithm)
    sizes = []
    for _ in range(rounds):
        before = run.bytes_sent[0]
        run.step()
        sizes.append((run.bytes_sent[0] - before) // 2)
    return sizes


def main() -> None:
    warnings.simplefilter("ignore", gossamer.TheoryWarning)
    shapes = resnet20()
    layout = Layout(tuple(shapes), tuple(shapes.values()))
    results: dict[str, Any] = {"parameters": layout.size, "tensors": len(shapes), "message bytes": {}}
    for spec in SPECS:
        compressor = gossamer.compress.make(spec)
        (sent,) = bytes_a_message(Choco(compressor, gamma=0.1, x_hat="zero"), 1)
        assert sent == compressor.nbytes(layout)
        results["message bytes"][spec] = sent
    to_p, to_q = bytes_a_message(PowerGossip(1), 2)
    results["message bytes"]["powergossip:1"] = {"P": to_p, "Q": to_q, "mean": (to_p + to_q) / 2}
    for name, size in results["message bytes"].items():
        print(f"{name:20} {size}")
    write("message_sizes", results)


if __name__ == "__main__":
    main()
