"""Who trains on what: complete, repeatable, and with equally many batches for all."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.tasks import Sampler

LABELS = torch.arange(600) % 10
KINDS = ("iid", "iid-fixed", "sorted", "dirichlet:0.1", "dirichlet:100")


def sampler(kind, workers=7, batch_size=8, seed=0):
    return Sampler(kind, 600, workers, batch_size, seed, LABELS)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None)
@given(
    workers=st.integers(1, 20), batch_size=st.integers(1, 30), seed=st.integers(0, 5), epoch=st.integers(0, 3)
)
def test_every_worker_has_equally_many_full_batches_of_its_own(kind, workers, batch_size, seed, epoch):
    s = sampler(kind, workers, batch_size, seed)
    for worker in range(workers):
        batches = s.batches(epoch, worker)
        assert batches.shape == (600 // (workers * batch_size), batch_size)
        assert torch.equal(batches, sampler(kind, workers, batch_size, seed).batches(epoch, worker))
        if kind != "iid":
            assert set(batches.flatten().tolist()) <= set(s.shards[worker].tolist())


@pytest.mark.parametrize("kind", KINDS)
def test_shards_hold_every_example_once(kind):
    dealt = torch.cat(sampler(kind).shards)
    if kind == "dirichlet:0.1":  # a worker that would have nothing may borrow one example
        assert 600 <= len(dealt) <= 607
        assert len(dealt.unique()) == 600
    else:
        assert torch.equal(dealt.sort().values, torch.arange(600))


def test_iid_deals_anew_every_epoch_and_fixed_does_not():
    anew, fixed = sampler("iid"), sampler("iid-fixed")
    assert set(anew.batches(0, 0).flatten().tolist()) != set(anew.batches(1, 0).flatten().tolist())
    every = torch.cat([anew.batches(1, w).flatten() for w in range(7)])
    assert len(every.unique()) == len(every)
    order = [fixed.batches(epoch, 0) for epoch in (0, 1)]
    assert not torch.equal(*order)
    assert set(order[1].flatten().tolist()) <= set(fixed.shards[0].tolist())


def test_by_class():
    by_class = sampler("sorted", workers=5).counts()
    assert (by_class > 0).sum(1).tolist() == [2] * 5
    assert sampler("dirichlet:100").counts().min() > 2
    skewed = sampler("dirichlet:0.1").counts()
    assert (skewed == 0).sum() > 20
    assert skewed.sum(0).min() >= 60


def test_seeds_differ():
    assert not torch.equal(sampler("iid", seed=0).batches(0, 0), sampler("iid", seed=1).batches(0, 0))
    assert not torch.equal(sampler("iid").batches(0, 0), sampler("iid").batches(0, 1))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("iidd", 600, 2, 8), "did you mean 'iid'"),
        (("dirichlet", 600, 2, 8, 0, LABELS), "give alpha"),
        (("dirichlet:-1", 600, 2, 8, 0, LABELS), "give alpha"),
        (("sorted", 600, 2, 8), "no classes"),
        (("iid", 600, 2, 0), "batch size 0"),
        (("iid", 600, 8, 100), "fewer workers or smaller batches"),
    ],
)
def test_mistakes_are_explained(arguments, complaint):
    with pytest.raises(ValueError, match=complaint):
        Sampler(*arguments)
