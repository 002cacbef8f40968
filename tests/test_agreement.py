"""Workers that were given different optimizers are stopped before they train."""

from __future__ import annotations

import pytest
import torch

import gossamer
from tests.support.problem import Model
from tests.support.threads import run_threads
from tests.support.training import wrap


def test_workers_with_other_optimizers_are_stopped():
    def work(link):
        model = Model()
        sgd_of = torch.optim.SGD(model.parameters(), lr=0.1 if link.rank else 0.2)
        with pytest.raises(gossamer.MismatchError, match=r"optimizer\.param_groups\[0\]\."):
            wrap(model, link, sgd_of)
        return True

    assert run_threads(3, work) == [True] * 3


def test_workers_with_another_optimizer_state_are_stopped():
    def work(link):
        model = Model()
        inner = torch.optim.Adam(model.parameters())
        for p in model.parameters():
            p.grad = torch.full_like(p, 1.0 + (link.rank == 2))
        inner.step()
        with pytest.raises(gossamer.MismatchError, match=r"worker 2 differs in 'optimizer\.state'"):
            wrap(model, link, inner)
        return True

    assert run_threads(3, work) == [True] * 3
