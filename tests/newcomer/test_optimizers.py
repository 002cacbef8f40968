"""Optimizers, learning rates and gradient scalers of all kinds."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

import gossamer
from tests.support.problem import flat
from tests.support.single_process import fit, loss_of, same, sgd, together, wrap
from tests.support.training import batch, small
from tests.support.workers import N, Row


def lbfgs(rank):
    """Its closure is evaluated several times a step; the quadratic's minimum is the mean of the targets."""
    model = nn.Linear(3, 1, bias=False)
    optimizer = wrap(model, torch.optim.LBFGS(model.parameters(), lr=0.5))

    def closure():
        optimizer.zero_grad()
        loss = (model.weight - 3.0 * rank).square().sum()
        loss.backward()
        return loss

    for _ in range(20):
        optimizer.step(closure)
    with optimizer.consensus():
        return flat(model)


def embedding(sparse):
    torch.manual_seed(0)
    return nn.Sequential(nn.EmbeddingBag(10, 3, sparse=sparse, mode="sum"))


def words(model, x, y):
    return cross_entropy(model((x.abs() * 3).long().clamp(max=9)), y)


def sparse_adam(rank):
    """Gossip of a sparse optimizer: with one step, the average of what each would have done alone."""
    model = embedding(True)
    optimizer = wrap(model, torch.optim.SparseAdam(list(model.parameters()), lr=0.1))
    fit(model, optimizer, 1, rank, loss=words)
    assert model[0].weight.grad.is_sparse
    ends = []
    for r in range(N):
        alone = embedding(True)
        fit(alone, torch.optim.SparseAdam(list(alone.parameters()), lr=0.1), 1, r, loss=words)
        ends.append(flat(alone))
    return same(flat(model), torch.stack(ends).mean(0))


def sparse_allreduce(rank):
    model, alone = embedding(True), embedding(False)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), algorithm="allreduce")
    words(model, *batch(rank, 0)).backward()
    assert model[0].weight.grad.is_sparse
    fit(model, optimizer, 4, rank, loss=words)
    return same(flat(model), together(alone, torch.optim.SGD(alone.parameters(), lr=0.1), 4, loss=words))


def inner_step(rank):
    model = small()
    inner = sgd(model)
    wrap(model, inner)
    loss_of(model, *batch(rank)).backward()
    inner.step()


def plateau(rank, agreed):
    """Worker 0's loss has stopped to fall, the others' falls on."""
    model = small()
    optimizer = wrap(model)
    scheduler = ReduceLROnPlateau(optimizer, patience=0, cooldown=10)
    rates = []
    for step in range(6):
        fit(model, optimizer, 1, rank, step)
        loss = 1.0 if rank == 0 else 0.5**step
        scheduler.step(optimizer.mean(loss) if agreed else loss)
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def mean_falls(rates):
    """The mean of 1, 0.5^t and 0.5^t falls at every step: nobody lowers the rate."""
    return rates == [[0.1] * 6] * N


def step_lr(rank):
    model = small()
    optimizer = wrap(model, torch.optim.Adadelta(model.parameters(), lr=1.0))
    scheduler, rates = StepLR(optimizer, 1, gamma=0.7), []
    for step in range(4):
        rates.append(optimizer.param_groups[0]["lr"])
        fit(model, optimizer, 1, rank, step)
        scheduler.step()
    return rates


def torchs_scaler(rank):
    """Worker 1 skips its second step alone, and makes up for it at the end, or others would wait in vain."""
    model = small()
    optimizer, scaler = wrap(model), torch.amp.GradScaler("cpu", init_scale=256.0)
    skipped = 0
    for step in range(6 if rank == 1 else 5):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, *batch(rank, step))).backward()
        if (rank, step) == (1, 1):
            model[0].bias.grad[0] = float("inf")
        before = optimizer.rounds
        scaler.step(optimizer)
        scaler.update()
        skipped += optimizer.rounds == before
    assert skipped == (rank == 1), "the fault"
    return optimizer.rounds == 5


def agreeing_scaler(rank, infinite, kind=gossamer.GradScaler, inner=sgd, **options):
    """All skip their second step, as plain torch without it."""
    model, alone = small(), small()
    optimizer, scaler = wrap(model, inner(model), **options), kind("cpu", init_scale=256.0)
    for step in range(5):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, *batch(rank, step))).backward()
        if rank in infinite and step == 1:
            model[0].bias.grad[0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
    assert optimizer.rounds == 5 - bool(infinite)
    assert scaler.get_scale() == 256.0 * 0.5 ** bool(infinite)
    plain = inner(alone)
    together(alone, plain, 1)
    if not infinite:
        together(alone, plain, 1, 1)
    return same(flat(model), together(alone, plain, 3, 2), 1e-4)


def fused_adamw(model):
    return torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)


ROWS = {
    "LBFGS": Row(lbfgs, fine=lambda found: all(same(x, torch.full((3,), 3.0), 0.05) for x in found)),
    "SparseAdam": Row(sparse_adam),
    "sparse gradients with allreduce": Row(sparse_allreduce),
    "step() of the optimizer inside": Row(inner_step, r"call step\(\) of the optimizer that it returned"),
    "StepLR": Row(step_lr, fine=lambda found: found == [pytest.approx([1.0, 0.7, 0.49, 0.343])] * N),
    "ReduceLROnPlateau on a local metric": Row(
        partial(plateau, agreed=False),
        r"'learning rate'.*scheduler\.step\(optimizer\.mean\(loss\)\)",
        gossamer.MismatchError,
    ),
    "ReduceLROnPlateau on the mean": Row(partial(plateau, agreed=True), fine=mean_falls),
    "torch's GradScaler, inf on one worker": Row(
        torchs_scaler, warned=r"GradScaler skipped a step on one worker alone \(use gossamer\.GradScaler\)"
    ),
    "gossamer.GradScaler, inf on one worker": Row(partial(agreeing_scaler, infinite={1})),
    "gossamer.GradScaler, no inf": Row(partial(agreeing_scaler, infinite=())),
    "torch's GradScaler, inf on all": Row(
        partial(agreeing_scaler, infinite={0, 1, 2}, kind=torch.amp.GradScaler)
    ),
    "fused AdamW and gossamer.GradScaler": Row(
        partial(agreeing_scaler, infinite={2}, inner=fused_adamw, algorithm="allreduce")
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_row(workers, name):
    workers.check(__name__, name, ROWS[name])
