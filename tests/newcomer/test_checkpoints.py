"""Saving and resuming: the run goes on with the same bits, or is refused with what to do."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.problem import flat
from tests.support.single_process import fit, same, sgd, wrap
from tests.support.training import small, through_a_file
from tests.support.workers import N, Row

ALGORITHMS: dict[str, dict[str, Any]] = {
    "choco sign": {"algorithm": "choco", "compressor": "sign", "gamma": 0.2},
    "choco topk:0.01": {"algorithm": "choco", "compressor": "topk:0.01", "gamma": 0.1},
    "powergossip:1": {"algorithm": "powergossip:1"},
    "deepsqueeze sign": {"algorithm": "deepsqueeze", "compressor": "sign", "gamma": 0.1},
    "dpsgd": {"algorithm": "dpsgd"},
}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.03)


def state_of(model, optimizer):
    return {name: v.clone() for name, v in model.state_dict().items()}, optimizer.rounds, optimizer.bytes_sent


def equal(a, b):
    return a[1:] == b[1:] and all(torch.equal(v, b[0][name]) for name, v in a[0].items())


def resumed(rank, order, options):
    """Stop after three steps of six. Lightning, for one, loads weights before the wrap."""
    model = network()
    optimizer = wrap(model, adam(model), **options)
    fit(model, optimizer, 3, rank)
    distance = optimizer.consensus_distance()
    assert distance > 1e-3, "workers that do not differ would forgive the wrong order"
    weights = through_a_file(model.state_dict())
    if order == "saved inside consensus()":
        with optimizer.consensus():
            state = through_a_file(optimizer.state_dict())
    else:
        state = through_a_file(optimizer.state_dict())
    fit(model, optimizer, 3, rank, 3)
    expected = state_of(model, optimizer)

    model = network()
    if order == "weights before the wrap":
        model.load_state_dict(weights)
    optimizer = wrap(model, adam(model), **options)
    if order == "weights after the wrap":
        model.load_state_dict(weights)
    optimizer.load_state_dict(state)
    assert optimizer.consensus_distance() == pytest.approx(distance, rel=1e-6)
    fit(model, optimizer, 3, rank, 3)
    return equal(state_of(model, optimizer), expected)


ORDERS = ("weights before the wrap", "weights after the wrap", "saved inside consensus()")


def saved_and_loaded(rank, change, **other):
    """Save, then load what `change` makes of all workers' states into a new optimizer with other settings."""
    model = small()
    optimizer = wrap(model, **ALGORITHMS["choco sign"])
    fit(model, optimizer, 2, rank)
    state = change(through_a_file(optimizer.state_dict()))
    again = small()
    wrap(again, **{**ALGORITHMS["choco sign"], **other}).load_state_dict(state)


def of_the_next_worker(state):
    """What a framework gives that saves worker 0's only: somebody else's."""
    other = [None] * N
    torch.distributed.all_gather_object(other, state)
    return other[(state["gossamer"]["rank"] + 1) % N]


def of_a_plain_optimizer(state):
    model = small()
    inner = sgd(model)
    fit(model, inner, 1, 0)
    return inner.state_dict()


def other_weights_last(rank):
    """The average model, loaded after the optimizer's state."""
    model = small()
    optimizer = wrap(model, **ALGORITHMS["choco sign"])
    fit(model, optimizer, 3, rank)
    with optimizer.consensus():
        average = through_a_file(model.state_dict())
    assert not same(torch.cat([v.reshape(-1) for v in average.values()]), flat(model), 1e-4)
    optimizer.load_state_dict(through_a_file(optimizer.state_dict()))
    model.load_state_dict(average)
    fit(model, optimizer, 1, rank, 3)


def saved_if_best(rank):
    """Each worker's own loss would have some save and others not; the mean decides for all."""
    optimizer = wrap(small())
    best, saved = float("inf"), []
    for step, losses in enumerate([(3.0, 3.0, 3.0), (1.0, 4.0, 5.0), (2.0, 1.0, 2.0)]):
        loss = optimizer.mean(losses[rank])
        if loss < best:
            best = loss
            saved.append(step)
    return saved, best


def without_broadcast(rank):
    """Every worker keeps what it has loaded, and without a checkpoint CHOCO has no common start."""
    model = nn.Linear(4, 3)
    nn.init.constant_(model.weight, float(rank))
    optimizer = wrap(model, sgd(model), broadcast=False, **ALGORITHMS["choco sign"])
    assert (model.weight == rank).all(), "worker 0's weights have come after all"
    optimizer.step()


ROWS = {
    f"resume, {order}, {name}": Row(partial(resumed, order=order, options=options))
    for name, options in ALGORITHMS.items()
    for order in ORDERS
} | {
    "another worker's checkpoint": Row(
        partial(saved_and_loaded, change=of_the_next_worker), r"every worker loads its own"
    ),
    "another compressor's checkpoint": Row(
        partial(saved_and_loaded, change=lambda s: s, compressor="fp16"),
        r"the checkpoint was made with algorithm.*Sign.*this run has .*fp16",
    ),
    "a plain optimizer's checkpoint": Row(
        partial(saved_and_loaded, change=of_a_plain_optimizer), r"load it before gossamer\.decentralize"
    ),
    "the average model loaded last": Row(
        other_weights_last, r"Load weights before the optimizer's state, or not at all"
    ),
    "broadcast=False without a checkpoint": Row(
        without_broadcast,
        r"load each worker's checkpoint with optimizer\.load_state_dict\(\), or wrap without",
    ),
    "save if best": Row(saved_if_best, fine=lambda found: found == [([0, 2], pytest.approx(5 / 3))] * N),
}


@pytest.mark.parametrize("name", ROWS)
def test_row(workers, name):
    workers.check(__name__, name, ROWS[name])
