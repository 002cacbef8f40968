"""Messages that fly while gradients are computed."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from gossamer.algorithms import DPSGD, Choco, PowerGossip
from gossamer.compress import Sign
from gossamer.topology import complete
from tests.support.oracle_check import GRAPHS, OPTIMIZERS, check_case
from tests.support.threads import run_threads
from tests.support.training import fit, small, wrap

EARLY = ("naive", "choco-overlapped", "dpsgd", "dpsgd-gamma", "powergossip-overlapped")


@pytest.mark.parametrize(("every", "overlap"), [(1, 1), (2, 2), (4, 1), (4, 3)])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("name", EARLY)
def test_the_matrix_form(name, optimizer, every, overlap):
    check_case(
        name,
        "qsgd-8bit",
        GRAPHS["irregular"],
        optimizer=OPTIMIZERS.get(optimizer),
        every=every,
        overlap=overlap,
        rounds=15,
    )


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("name", EARLY)
def test_few_workers(name, n):
    check_case(name, "qsgd-8bit", complete(n), every=3, overlap=2, rounds=10)


@pytest.mark.parametrize(
    "algorithm", [DPSGD(), Choco(Sign(), 0.3, "combine-then-adapt"), PowerGossip(order="combine-then-adapt")]
)
def test_every_step_counts_for_every_dtype(algorithm):
    """The average of all workers does the average of all steps, whatever is exchanged when."""

    def work(link):
        model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2).double())
        optimizer = wrap(
            model, link, torch.optim.SGD(model.parameters(), 0.5), algorithm=algorithm, every=3, overlap=2
        )
        start = [p.detach().double().clone() for p in model.parameters()]
        for step in range(6):
            for p in model.parameters():
                p.grad = torch.full_like(p, float(step + link.rank))
            optimizer.step()
        with optimizer.consensus():
            moved = [p.detach().double() - x for p, x in zip(model.parameters(), start, strict=True)]
        optimizer.close()
        return moved

    expected = -0.5 * sum(step + 1 for step in range(6))  # the ranks are 1 on average
    for moved in run_threads(3, work):
        for change in moved:
            assert torch.allclose(change, torch.full_like(change, expected), rtol=0, atol=1e-5)


@pytest.mark.parametrize("overlap", [0, 1, 2, 3])
def test_overlapping_messages_leave_so_many_steps_early(overlap):
    def work(link):
        model = small()
        optimizer = wrap(model, link, algorithm=DPSGD(), every=3, overlap=overlap)
        sent = [link.sent.total()]
        for step in range(6):
            fit(model, optimizer, 1, link.rank, step)
            sent.append(link.sent.total())
        optimizer.close()
        return [after - before for before, after in pairwise(sent)]

    # They leave at the end of the step before those that they fly during.
    leaving = {0: [0, 0, 1, 0, 0, 1], 1: [0, 1, 0, 0, 1, 0], 2: [1, 0, 0, 1, 0, 0], 3: [1, 0, 1, 0, 0, 1]}
    for sent in run_threads(3, work):
        assert [bool(count) for count in sent] == leaving[overlap]
