"""The truth that rows are compared with: plain torch in one process, with all workers' batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

import gossamer
from tests.support.problem import flat
from tests.support.training import batch, small
from tests.support.workers import N

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


def sgd(model: nn.Module) -> Optimizer:
    return torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.1, momentum=0.9)


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return cross_entropy(model(x), y)


def wrap(model: nn.Module, inner: Optimizer | None = None, **options: Any) -> gossamer.DecentralizedOptimizer:
    """Wrap so that, without options, three workers on a ring are exactly one with all their batches.

    All are neighbours, and steps are averaged before anybody goes on.
    """
    chosen = {"algorithm": "dpsgd", "order": "adapt-then-combine", **options}
    if options.keys() & {"algorithm", "compressor"}:
        chosen = options
    return gossamer.decentralize(inner or sgd(model), model, **chosen)


def fit(
    model: nn.Module, optimizer: Optimizer, steps: int, rank: int, first: int = 0, loss: Loss = loss_of
) -> None:
    """Train with one worker's batches."""
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss(model, *batch(rank, step)).backward()
        optimizer.step()


def together(
    model: nn.Module,
    optimizer: Optimizer,
    steps: int,
    first: int = 0,
    loss: Loss = loss_of,
    workers: int = N,
) -> Tensor:
    """Train with the batches of all workers; return the parameters."""
    for step in range(first, first + steps):
        optimizer.zero_grad()
        for rank in range(workers):
            loss(model, *batch(rank, step)).backward()
        for p in model.parameters():
            if p.grad is not None:
                p.grad /= workers
        optimizer.step()
    return flat(model)


def same(a: Tensor, b: Tensor, atol: float = 1e-5) -> bool:
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=atol)


def trains_like_torch(
    rank: int,
    make: Callable[[], nn.Module] = small,
    inner: Callable[[nn.Module], Optimizer] = sgd,
    loss: Loss = loss_of,
    steps: int = 4,
    atol: float = 1e-5,
    **options: Any,
) -> bool:
    """Return whether this worker and its neighbours end where one process with all batches does."""
    model, alone = make(), make()
    optimizer = wrap(model, inner(model), **options)
    fit(model, optimizer, steps, rank, loss=loss)
    start = flat(make())
    expected = together(alone, inner(alone), steps, loss=loss)
    assert not same(start, expected, max(1e-3, 5 * atol)), "nothing was learned that could be compared"
    return same(flat(model), expected, atol)
