"""One small strongly convex problem, the same for simulated and for real workers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import gossamer
from gossamer.algorithms import Algorithm
from gossamer.topology import Schedule, Topology

SHAPES = {"conv": (4, 3, 3), "matrix": (12, 8), "bias": (8,), "scale": ()}
LR, MOMENTUM = 0.05, 0.5


class Model(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(0)
        for name, shape in SHAPES.items():
            value = torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)
            self.register_parameter(name, nn.Parameter(value))


def gradients(rank: int, parameters: dict[str, Tensor], step: int) -> dict[str, Tensor]:
    """Every worker is drawn to a point of its own, a little to and fro."""
    rng = torch.Generator().manual_seed(1000 + rank)
    targets = {
        name: torch.randn(p.shape, generator=rng, dtype=torch.float64) for name, p in parameters.items()
    }
    return {n: (p - targets[n].to(p.dtype)) * (1 + 0.1 * (step % 3)) for n, p in parameters.items()}


def sgd(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=LR, momentum=MOMENTUM)


def simulated(
    algorithm: Algorithm,
    graph: Topology | Schedule,
    steps: int,
    every: int = 1,
    dtype: torch.dtype = torch.float32,
    overlap: int = 0,
) -> gossamer.Simulation:
    start = {name: p.detach() for name, p in Model(dtype).named_parameters()}
    run = gossamer.Simulation(
        start, graph, algorithm, gradient=gradients, optimizer=sgd, every=every, overlap=overlap
    )
    run.run(steps)
    return run


def trained(
    algorithm: Algorithm, graph: Topology | Schedule | str, steps: int, **options: Any
) -> tuple[Tensor, gossamer.DecentralizedOptimizer]:
    """Train this process's worker with the real optimizer wrapper; return its parameters, flat."""
    model = Model()
    optimizer = gossamer.decentralize(
        sgd(list(model.parameters())), model, topology=graph, algorithm=algorithm, **options
    )
    advance(model, optimizer, steps)
    return flat(model), optimizer


def advance(model: nn.Module, optimizer: gossamer.DecentralizedOptimizer, steps: int, first: int = 0) -> None:
    for step in range(first, first + steps):
        for name, g in gradients(optimizer.rank, dict(model.named_parameters()), step).items():
            model.get_parameter(name).grad = g.detach()
        optimizer.step()


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])
