"""All-reduce with the optimizers that people have: what it makes of their gradients, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from gossamer.algorithms import AllReduce
from tests.support.problem import flat
from tests.support.threads import run_threads
from tests.support.training import batch, fit, small, wrap


def test_all_reduce_with_adam_is_one_worker_with_the_mean_gradient():
    def work(link):
        model = small()
        fit(
            model,
            wrap(model, link, torch.optim.Adam(model.parameters()), algorithm=AllReduce()),
            10,
            link.rank,
        )
        return flat(model)

    alone = small()
    adam = torch.optim.Adam(alone.parameters())
    for step in range(10):
        adam.zero_grad()
        for rank in range(3):
            x, y = batch(rank, step)
            (cross_entropy(alone(x), y) / 3).backward()
        adam.step()
    for x in run_threads(3, work):
        assert torch.allclose(x, flat(alone), rtol=0, atol=1e-5)


def test_a_closure_without_a_value_is_evaluated_once():
    calls = []

    def work(link):
        model = small()
        optimizer = wrap(model, link, algorithm=AllReduce())

        def closure():
            calls.append(link.rank)
            optimizer.zero_grad()
            x, y = batch(link.rank)
            cross_entropy(model(x), y).backward()

        for _ in range(3):
            optimizer.step(closure)
        return flat(model)

    results = run_threads(2, work)
    assert torch.equal(*results)
    assert len(calls) == 6


def test_all_reduce_refuses_an_optimizer_that_wants_more_gradients():
    model, x = nn.Linear(4, 1), torch.randn(8, 4)
    optimizer = wrap(model, inner=torch.optim.LBFGS(model.parameters()), algorithm=AllReduce())

    def closure():
        optimizer.zero_grad()
        loss = mse_loss(model(x), x[:, :1])
        loss.backward()
        return loss

    with pytest.raises(ValueError, match="one gradient per step"):
        optimizer.step(closure)


def test_all_reduce_with_a_gradient_on_some_workers_only():
    def work(link):
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
        optimizer = wrap(model, link, inner, algorithm=AllReduce())
        for step in range(6):
            for i, p in enumerate(model.parameters()):
                p.grad = None if (i + link.rank) % 2 else torch.zeros_like(p) + (step % 2) * (i % 3)
            optimizer.step()
        return flat(model)

    results = run_threads(2, work)
    assert torch.equal(*results)
