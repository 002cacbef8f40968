"""DDP inside a machine, gossip between machines: four processes stand for two machines of two."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import gossamer
from gossamer.algorithms import Algorithm
from tests.support.cases import PLAIN
from tests.support.problem import flat, sgd
from tests.support.processes import run_processes, torchrun
from tests.support.training import CHOCO, batch, small

ROOT = Path(__file__).resolve().parents[2]
STEPS = 5


def train(rank: int, n: int, algorithm: Algorithm) -> tuple[Tensor, Tensor, int]:
    """Return this process's model, the average of all machines, and the bytes sent."""
    inside = [dist.new_group([0, 1]), dist.new_group([2, 3])][rank // 2]
    between = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    model = DistributedDataParallel(small(), process_group=inside)
    optimizer = gossamer.decentralize(
        sgd(list(model.parameters())), model, algorithm=algorithm, group=between
    )
    assert (optimizer.rank, optimizer.transport.size) == (rank // 2, 2)
    for step in range(STEPS):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    with optimizer.consensus():
        average = flat(model).clone()
    return flat(model).clone(), average, optimizer.bytes_sent


def machines_gradient(machine: int, parameters: dict[str, Tensor], step: int) -> dict[str, Tensor]:
    """Return the average over the two processes of a machine, by hand."""
    model, grads = small(), []
    for rank in (2 * machine, 2 * machine + 1):
        leaves = {name: p.detach().clone().requires_grad_() for name, p in parameters.items()}
        x, y = batch(rank, step)
        loss = cross_entropy(functional_call(model, leaves, (x,)), y)
        grads.append(torch.autograd.grad(loss, list(leaves.values())))
    return {name: (a + b) / 2 for name, a, b in zip(parameters, *grads, strict=True)}


@pytest.mark.parametrize("name", ["dpsgd", "powergossip-2", "choco"])
def test_four_processes_are_two_machines(name):
    algorithm = {**PLAIN, "choco": CHOCO}[name]
    results = run_processes(4, train, algorithm)
    models, averages, sent = zip(*results, strict=True)
    assert torch.equal(models[0], models[1])  # bit for bit inside a machine
    assert torch.equal(models[2], models[3])
    assert not torch.equal(models[0], models[2])  # and gossip, not an average, between them
    assert all(torch.equal(averages[0], average) for average in averages)
    start = {name: p.detach() for name, p in small().named_parameters()}
    run = gossamer.Simulation(start, "ring", algorithm, workers=2, gradient=machines_gradient, optimizer=sgd)
    run.run(STEPS)
    assert list(sent) == [run.bytes_sent[machine] for machine in (0, 0, 1, 1)]
    for machine in (0, 1):
        torch.testing.assert_close(models[2 * machine], run.x[machine], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(averages[0], run.average(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [[], ["--one-sender"]], ids=["all send", "one sender"])
def test_the_example_runs(options, tmp_path):
    """It checks itself that the processes of a machine hold the same model."""
    printed = torchrun(ROOT / "examples" / "hierarchy.py", tmp_path, *options, n=4)
    # not by lines: two processes print at once, and the ends of their lines may come later
    told = sorted(re.findall(r"machine (\d): average model ([\d.]+)%", printed))
    assert [machine for machine, _ in told] == ["0", "1"], printed
    assert all(float(percent) > 60 for _, percent in told), told  # ten classes
