"""DDP inside a machine, gossip between machines: handwritten digits with two processes a machine.

    torchrun --standalone --nproc-per-node 4 examples/hierarchy.py                # two machines, pretended
    torchrun --nnodes 3 --nproc-per-node 2 ... examples/hierarchy.py              # three real ones

With --one-sender only one process a machine gossips, and gives its model to the others after every step.

Gradients are averaged exactly among the processes of a machine, whose connection is fast, and the
machines exchange a hundredth of the entries. The processes of a machine always hold the same model.
"""

import os
import sys

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import gossamer

EPOCHS, BATCH, PER_MACHINE = 10, 16, 2
ONE_SENDER = "--one-sender" in sys.argv
RANK, PROCESSES = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MACHINE, LOCAL_RANK = divmod(RANK, PER_MACHINE)


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(images, dtype=torch.float32)[order] / 16, torch.tensor(labels)[order]
    train = slice(297 + RANK, None, PROCESSES)
    return x[train], y[train], x[:297], y[:297]


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


def share(model: nn.Module, inside: dist.ProcessGroup) -> None:
    """Give the machine's other processes what its first one holds."""
    for p in model.parameters():
        dist.broadcast(p.detach(), src=MACHINE * PER_MACHINE, group=inside)


def evaluate(model: nn.Module, optimizer: gossamer.DecentralizedOptimizer) -> None:
    _, _, x, y = data()
    with optimizer.consensus():
        average = accuracy(model, x, y)
    own, distance = accuracy(model, x, y), optimizer.consensus_distance()
    if LOCAL_RANK == 0:
        print(
            f"machine {MACHINE}: average model {average:.1%}, own model {own:.1%}, "
            f"consensus distance {distance:.2f}, "
            f"sent {optimizer.bytes_sent / 1e6:.2f} MB a sender"
        )


def main() -> None:
    torch.set_num_threads(1)  # processes that share a machine's cores must not fight for them
    torch.manual_seed(RANK)
    dist.init_process_group("gloo")  # "nccl", and "cuda" in the next line, where there are GPUs
    machines = PROCESSES // PER_MACHINE
    mesh = init_device_mesh("cpu", (machines, PER_MACHINE), mesh_dim_names=("between", "inside"))
    inside, between = mesh.get_group("inside"), mesh.get_group("between")

    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    model = DistributedDataParallel(net, process_group=inside)
    optimizer = None
    if not ONE_SENDER or LOCAL_RANK == 0:
        inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        optimizer = gossamer.decentralize(
            inner, model, group=between, topology="ring", algorithm="choco", compressor="topk:0.01"
        )
    if ONE_SENDER:
        share(model, inside)  # decentralize has given all senders the same start

    x, y, _, _ = data()
    steps = 1500 // PROCESSES // BATCH  # the same on all processes
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(y))[: steps * BATCH].view(steps, BATCH):
            model.zero_grad()
            cross_entropy(model(x[batch]), y[batch]).backward()  # DDP averages inside the machine
            if optimizer is not None:
                optimizer.step()  # and this gossips between machines
            if ONE_SENDER:
                share(model, inside)

    if optimizer is not None:
        evaluate(model, optimizer)
    own = [p.detach().clone() for p in model.parameters()]
    share(model, inside)
    same = all(torch.equal(p, before) for p, before in zip(model.parameters(), own, strict=True))
    assert same, "the processes of a machine hold the same model"
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
