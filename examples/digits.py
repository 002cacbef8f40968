"""Handwritten digits on a ring of workers: CHOCO-SGD with 1 % of the entries a message.

    torchrun --standalone --nproc-per-node 8 examples/digits.py

Every worker holds its own eighth of the data, talks only to its two neighbours, and never sees a
server. What is printed at the end is the accuracy of the average model and of the local ones.
"""

import logging
import os

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import gossamer

EPOCHS, BATCH = 15, 16
RANK, WORKERS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(images, dtype=torch.float32)[order] / 16, torch.tensor(labels)[order]
    train = slice(297 + RANK, None, WORKERS)
    return x[train], y[train], x[:297], y[:297]


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


def main() -> None:
    logging.basicConfig(level=logging.INFO if RANK == 0 else logging.WARNING, format="%(message)s")
    torch.set_num_threads(1)  # workers that share a machine's cores must not fight for them
    torch.manual_seed(RANK)
    x, y, x_test, y_test = data()
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = gossamer.decentralize(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        model,
        topology="ring",
        algorithm="choco",
        compressor="topk:0.01",
    )
    steps = 1500 // WORKERS // BATCH  # the same on all workers
    for epoch in range(1, EPOCHS + 1):
        for batch in torch.randperm(len(y))[: steps * BATCH].view(steps, BATCH):
            loss = cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        local = accuracy(model, x_test, y_test)
        with optimizer.consensus():
            average = accuracy(model, x_test, y_test)
        distance = optimizer.consensus_distance()
        if RANK == 0 and epoch % 5 == 0:
            print(
                f"epoch {epoch:2}  loss {loss:.3f}  average model {average:.1%}, worker 0 {local:.1%}  "
                f"consensus distance {distance:.2f}  sent {optimizer.bytes_sent / 1e6:.2f} MB per worker"
            )
    if RANK == 0 and WORKERS > 1:
        neighbours = len(optimizer.topology.receivers(RANK, 0))
        full = optimizer.rounds * neighbours * sum(p.numel() * p.itemsize for p in model.parameters())
        print(f"in full precision: {full / 1e6:.1f} MB, {full / optimizer.bytes_sent:.0f} times as much")


if __name__ == "__main__":
    main()
