"""Models of all kinds, wrapped and trained: each ends where plain torch or arithmetic says."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, TensorDataset

from gossamer.compress.wire import HEADER
from tests.support.problem import flat
from tests.support.single_process import fit, loss_of, same, sgd, together, trains_like_torch, wrap
from tests.support.training import batch, small
from tests.support.workers import N, Row


def bytes_a_round(numbers):
    """What D-PSGD sends to two neighbours in float32."""
    return 2 * (HEADER.size + 4 * numbers)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Linear(6, 5), nn.Linear(5, 6, bias=False)
        self.head.weight = nn.Parameter(self.embed.weight.detach().T.clone())
        self.out = nn.Linear(6, 5)
        self.out.weight = self.embed.weight  # the tie

    def forward(self, x):
        return self.out(self.head(torch.tanh(self.embed(x))))


def tied(rank):
    model, alone = Tied(), Tied()
    optimizer = wrap(model)
    fit(model, optimizer, 4, rank)
    assert model.out.weight is model.embed.weight
    numbers = sum(p.numel() for p in model.parameters())  # a tied one is once among them
    assert numbers == 30 + 5 + 30 + 5
    assert optimizer.bytes_sent == 4 * bytes_a_round(numbers)
    return same(flat(model), together(alone, sgd(alone), 4))


def batch_norm(rank):
    torch.manual_seed(0)
    linear, norm = nn.Linear(6, 5), nn.BatchNorm1d(5)
    model = nn.Sequential(linear, norm, nn.Linear(5, 3))
    optimizer = wrap(model)
    fit(model, optimizer, 3, rank)
    assert norm.running_mean is not None
    own = norm.running_mean.clone()
    with optimizer.consensus():
        average = norm.running_mean.clone()
    assert torch.equal(norm.running_mean, own), "not restored"
    return own, average


def statistics_are_averaged(results):
    owns, averages = (torch.stack(list(part)) for part in zip(*results, strict=True))
    assert not same(owns[0], owns[1], 1e-3), "workers have seen different data"
    return all(same(average, owns.mean(0)) for average in averages)


class Adapted(nn.Module):
    """A frozen layer with two thin trained ones beside it, as LoRA has."""

    def __init__(self, rank=0):
        super().__init__()
        torch.manual_seed(0)
        self.backbone = nn.Linear(6, 3).requires_grad_(False)
        self.down, self.up = nn.Linear(6, 2, bias=False), nn.Linear(2, 3, bias=False)
        self.backbone.weight += rank  # workers that have loaded different files

    def forward(self, x):
        return self.backbone(x) + self.up(self.down(x))


def adapters(rank):
    model, alone = Adapted(rank), Adapted()
    optimizer = wrap(model)
    assert torch.equal(model.backbone.weight, alone.backbone.weight), "not made equal"
    fit(model, optimizer, 4, rank)
    assert optimizer.bytes_sent == 4 * bytes_a_round(6 * 2 + 2 * 3)
    return same(flat(model), together(alone, sgd(alone), 4))


def frozen_later(rank):
    model = small()
    optimizer = wrap(model)
    fit(model, optimizer, 2, rank)
    model[0].requires_grad_(False)
    before, sent = model[0].weight.clone(), optimizer.bytes_sent
    fit(model, optimizer, 3, rank, 2)
    assert torch.equal(model[0].weight, before), "it has moved"
    assert optimizer.bytes_sent - sent == 3 * bytes_a_round(5 * 3 + 3)
    alone = small()
    inner = sgd(alone)
    together(alone, inner, 2)
    alone[0].requires_grad_(False)
    return same(flat(model), together(alone, inner, 3, 2))


def unfrozen_later(rank):
    model = small()
    model[0].requires_grad_(False)
    optimizer = wrap(model)
    fit(model, optimizer, 1, rank)
    model[0].requires_grad_(True)
    fit(model, optimizer, 1, rank)


def half_precision(rank, **options):
    """Workers drawn to 0.75, 1.0 and 1.25 meet at 1."""
    model = nn.Linear(4, 4).bfloat16()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), **options)
    for _ in range(60):
        optimizer.zero_grad()
        sum((p - 0.75 - 0.25 * rank).square().sum() / 2 for p in model.parameters()).backward()
        optimizer.step()
    assert all(p.dtype == torch.bfloat16 for p in model.parameters())
    with optimizer.consensus():
        return flat(model).float()


def meet_at_one(results):
    return all(same(average, torch.ones(20), 0.05) for average in results)


class Experts(nn.Module):
    """A batch goes to one of two experts, by its first number; a third is never asked."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.experts = nn.ModuleList(nn.Linear(6, 3) for _ in range(3))

    def forward(self, x):
        return self.experts[int(x[0, 0] > 0)](x)


def experts(rank):
    asked = {r: int(batch(r, 0)[0][0, 0] > 0) for r in range(N)}
    assert len(set(asked.values())) == 2, "all workers ask the same expert"
    model = Experts()
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.1))
    fit(model, optimizer, 1, rank)
    assert model.experts[2].weight.grad is None
    assert model.experts[1 - asked[rank]].weight.grad is None, "its gradient was not missing"
    fit(model, optimizer, 3, rank, 1)
    alone = Experts()
    return same(flat(model), together(alone, torch.optim.SGD(alone.parameters(), lr=0.1), 4))


def two_models(rank):
    """As a GAN has them: an optimizer each, steps in turn."""
    models, alones = [small(), Tied()], [small(), Tied()]
    optimizers, inners = [wrap(m) for m in models], [sgd(m) for m in alones]
    for step in range(3):
        for i in range(2):
            fit(models[i], optimizers[i], 1, rank, step)
            together(alones[i], inners[i], 1, step)
    return all(same(flat(m), flat(a)) for m, a in zip(models, alones, strict=True))


def averaged(rank):
    """A copy of the model that follows it, as EMA does, does not disturb the exchange."""
    model, alone = small(), small()
    optimizer, inner = wrap(model), sgd(alone)
    follower, follows_alone = AveragedModel(model), AveragedModel(alone)
    for step in range(4):
        fit(model, optimizer, 1, rank, step)
        follower.update_parameters(model)
        together(alone, inner, 1, step)
        follows_alone.update_parameters(alone)
    twin = copy.deepcopy(model)
    assert torch.equal(flat(twin), flat(model))
    return same(flat(follower), flat(follows_alone))


def loader_workers(rank):
    data = TensorDataset(
        torch.cat([batch(rank, s)[0] for s in range(4)]), torch.cat([batch(rank, s)[1] for s in range(4)])
    )
    model, alone = small(), small()
    optimizer = wrap(model)
    for x, y in DataLoader(data, batch_size=8, num_workers=1, multiprocessing_context="fork"):
        optimizer.zero_grad()
        loss_of(model, x, y).backward()
        optimizer.step()
    return same(flat(model), together(alone, sgd(alone), 4))


ROWS = {
    "SGD": Row(trains_like_torch),
    "tied weights": Row(tied),
    "BatchNorm": Row(batch_norm, fine=statistics_are_averaged),
    "a frozen backbone with adapters": Row(adapters),
    "a layer frozen after the wrap": Row(frozen_later),
    "a layer unfrozen after the wrap": Row(
        unfrozen_later, r"unfreeze it first and wrap the optimizer afterwards"
    ),
    "bf16 parameters, choco": Row(
        partial(half_precision, algorithm="choco", compressor="sign", gamma=0.3), fine=meet_at_one
    ),
    "bf16 parameters, powergossip": Row(partial(half_precision, algorithm="powergossip:2"), fine=meet_at_one),
    "bf16 parameters, dpsgd": Row(partial(half_precision, algorithm="dpsgd"), fine=meet_at_one),
    "a mixture of experts": Row(experts),
    "two models": Row(two_models),
    "EMA and deepcopy(model)": Row(averaged),
    "workers of a DataLoader": Row(loader_workers),
}


@pytest.mark.parametrize("name", ROWS)
def test_row(workers, name):
    workers.check(__name__, name, ROWS[name])
