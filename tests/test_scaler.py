"""A GradScaler whose skipped steps all workers agree on."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.nn.functional import cross_entropy

import gossamer
from tests.support.problem import flat
from tests.support.threads import run_threads
from tests.support.training import batch, small, wrap


def train(link, bad, scaler, clip=False):
    model = small()
    optimizer = wrap(model, link, torch.optim.SGD(model.parameters(), lr=0.1))
    skipped = 0
    for step in range(6):
        x, y = batch(link.rank, step)
        optimizer.zero_grad()
        scaler.scale(cross_entropy(model(x), y)).backward()
        if (link.rank, step) in bad:
            model[0].weight.grad[0, 0] = float("inf")
        if clip:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = optimizer.rounds
        scaler.step(optimizer)
        scaler.update()
        skipped += optimizer.rounds == before
    return skipped, scaler.get_scale(), flat(model), optimizer.bytes_sent


@pytest.mark.parametrize("clip", [False, True])
@pytest.mark.parametrize("bad", [set(), {(1, 2)}, {(0, 0), (2, 0)}, {(1, 1), (2, 4)}])
def test_a_step_is_skipped_by_all_or_by_none(bad, clip):
    def work(link):
        return train(link, bad, gossamer.GradScaler("cpu", init_scale=256.0), clip)

    steps = {step for _, step in bad}
    for skipped, scale, _, _ in run_threads(3, work):
        assert skipped == len(steps)
        assert scale == 256.0 * 0.5 ** len(steps)


def test_without_overflow_it_is_torchs_scaler():
    def work(link, kind):
        return train(link, set(), kind("cpu", init_scale=256.0))

    ours, torchs = (
        run_threads(3, partial(work, kind=kind)) for kind in (gossamer.GradScaler, torch.amp.GradScaler)
    )
    for mine, theirs in zip(ours, torchs, strict=True):
        assert mine[:2] == theirs[:2]
        assert torch.equal(mine[2], theirs[2])
        assert theirs[3] < mine[3] < theirs[3] + 6 * 4 * 17, "a byte and its header, to and from worker 0"


def test_it_works_with_plain_optimizers():
    model = small()
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), gossamer.GradScaler("cpu")
    x, y = batch()
    scaler.scale(cross_entropy(model(x), y)).backward()
    before = flat(model)
    scaler.step(optimizer)
    assert not torch.equal(before, flat(model))
