# mypy: ignore-errors
"""Tell two spirals apart on a ring of workers: the script of docs/start.md."""

import math
import os  # new

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import gossamer  # new

RANK, WORKERS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))  # new


def spirals(examples, seed):
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (examples,), generator=rng)
    turn = torch.rand(examples, generator=rng) * 2 * math.pi
    return torch.stack([turn * (turn + math.pi * y).cos(), turn * (turn + math.pi * y).sin()], 1) / 6, y


torch.manual_seed(RANK)  # new: every worker draws its own batches
model = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer = gossamer.decentralize(optimizer, model, algorithm="choco", compressor="sign")  # new
x, y = spirals(4000, seed=0)
x, y = x[RANK::WORKERS], y[RANK::WORKERS]  # new: a part of the data
for _ in range(400):
    batch = torch.randint(len(y), (32,))
    optimizer.zero_grad()
    cross_entropy(model(x[batch]), y[batch]).backward()
    optimizer.step()

x, y = spirals(1000, seed=1)
with optimizer.consensus():  # new
    if RANK == 0:  # new
        print(f"accuracy {(model(x).argmax(1) == y).float().mean():.2f}")
        print(f"sent {optimizer.bytes_sent / 1e6:.1f} MB per worker")  # new
# the end of what docs/start.md shows
