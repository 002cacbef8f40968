"""Tell two spirals apart, a task of one's own: `gossamer train --task examples/own_task.py --workers 4`.

`task()` returns how to make the model, the training examples, the loss of a batch, and how to
judge a model.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from gossamer.tasks import Task


def spirals(examples: int, seed: int) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (examples,), generator=rng)
    turn = torch.rand(examples, generator=rng) * 2 * math.pi
    return torch.stack([turn * (turn + math.pi * y).cos(), turn * (turn + math.pi * y).sin()], 1) / 6, y


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return cross_entropy(model(batch[0]), batch[1])


def evaluate(model: nn.Module) -> dict[str, float]:
    x, y = spirals(1000, seed=1)
    with torch.no_grad():
        return {"accuracy": float((model(x).argmax(1) == y).float().mean())}


def task() -> Task:
    return Task("spirals", network, TensorDataset(*spirals(4000, seed=0)), loss, evaluate)
