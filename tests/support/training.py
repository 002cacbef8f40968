"""A small network to wrap, and steps to train it with."""

from __future__ import annotations

import io

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import gossamer
from gossamer.algorithms import DPSGD, Choco
from gossamer.compress import TopK
from tests.support.problem import sgd
from tests.support.threads import seeded

CHOCO = Choco(TopK(0.25), gamma=0.3)


def wrap(model, link=None, inner=None, **options):
    options = {"algorithm": DPSGD(), "topology": "ring", **options}
    return gossamer.decentralize(inner or sgd(list(model.parameters())), model, transport=link, **options)


def small():
    with seeded():
        return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def batch(rank=0, step=0):
    rng = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(8, 6, generator=rng), torch.randint(3, (8,), generator=rng)


def through_a_file(state):
    """Return what a checkpoint on disk would give back."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def fit(model, optimizer, steps, rank=0, first=0):
    for step in range(first, first + steps):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
