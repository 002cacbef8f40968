"""What people do in their loops: with the model, the optimizer, the scheduler and the scaler."""

from __future__ import annotations

import gc
import os
import signal
from functools import partial

import pytest
import torch
from torch import nn

from gossamer._node.shown import MANY
from tests.support.problem import flat
from tests.support.single_process import fit, loss_of, same, sgd, together, wrap
from tests.support.training import small
from tests.support.workers import N, Row


def changed(change, rank):
    """Change the model between two steps."""
    model = small()
    optimizer = wrap(model)
    fit(model, optimizer, 2, rank)
    change(model)
    fit(model, optimizer, 2, rank, 2, lambda m, x, y: loss_of(m, x.to(next(m.parameters()).dtype), y))
    alone = small()
    return same(flat(model), together(alone, sgd(alone), 4))


def copied(move):
    """A move that leaves dtype and device as they were, and puts the parameters elsewhere."""

    def change(model):
        places = [p.data_ptr() for p in model.parameters()]
        move(model)
        assert places != [p.data_ptr() for p in model.parameters()], "nothing was moved"

    return partial(changed, change)


def to_half_and_back(rank):
    """Rounds the weights, and no more: plain torch with the same weights agrees."""
    model, alone = small(), small()
    optimizer, inner = wrap(model), sgd(alone)
    fit(model, optimizer, 2, rank)
    model.bfloat16().float()
    together(alone, inner, 2)
    alone.bfloat16().float()
    fit(model, optimizer, 2, rank, 2)
    return same(flat(model), together(alone, inner, 2, 2), 0.02)  # a bit of bfloat16 may have rounded apart


def loaded_per_worker(rank):
    """Weights of each worker's own, after the wrap: gossip pulls them together."""
    model = nn.Linear(2, 2)
    optimizer = wrap(model, torch.optim.SGD(model.parameters(), lr=0.0))
    model.load_state_dict({name: torch.full_like(v, 3.0 * rank) for name, v in model.state_dict().items()})
    optimizer.step()
    return flat(model)


def inside_consensus(call, rank):
    model = small()
    optimizer = wrap(model, algorithm="dpsgd")
    fit(model, optimizer, 2, rank)
    with optimizer.consensus():
        call(optimizer)


def forgotten(rank, steps=MANY, entering=False):
    """What is evaluated and saved without consensus() is this worker's own model: told when all is done."""
    model = small()
    optimizer = wrap(model, algorithm="dpsgd")
    fit(model, optimizer, steps, rank)
    if entering:
        with optimizer.consensus():
            pass
    del optimizer
    gc.collect()
    return flat(model)


def stopped(rank):
    """Whoever has saved to resume later has done nothing wrong."""
    model = small()
    optimizer = wrap(model, algorithm="dpsgd")
    with optimizer.catching_interrupts() as interrupted:
        for step in range(10 * MANY):
            fit(model, optimizer, 1, rank, step)
            if rank == 1 and step == MANY:
                os.kill(os.getpid(), signal.SIGINT)
            if interrupted():
                break
    assert step < 9 * MANY, "it was not interrupted"
    del optimizer, interrupted
    gc.collect()
    return flat(model)


def differ(models):
    return not same(models[0], models[1], 1e-4)


def nested(rank):
    model = small()
    optimizer = wrap(model, algorithm="dpsgd")
    fit(model, optimizer, 2, rank)
    own = flat(model)
    with optimizer.consensus():
        sent = optimizer.consensus_bytes_sent
        with optimizer.consensus():
            average = flat(model)
        assert torch.equal(flat(model), average), "the inner one has put the own model back"
        assert optimizer.consensus_bytes_sent == sent
    assert torch.equal(flat(model), own)
    return own, average


def are_averages(results):
    owns = torch.stack([own for own, _ in results])
    assert not same(owns[0], owns[1], 1e-4), "workers do not differ"
    return all(same(average, owns.mean(0), 1e-6) for _, average in results)


def evaluations_are_counted(rank):
    model = small()
    optimizer = wrap(model, algorithm="dpsgd")
    fit(model, optimizer, 2, rank)
    training, d = optimizer.bytes_sent, flat(model).numel()
    with optimizer.consensus():
        pass
    once = optimizer.consensus_bytes_sent
    optimizer.consensus_distance()
    whole = 8 * d * (N - 1) / N  # of a ring all-reduce in float32
    assert whole <= once <= whole + 150
    assert whole <= optimizer.consensus_bytes_sent - once <= whole + 150
    return optimizer.bytes_sent == training


REPLACED = r"replaced after the optimizer was wrapped.*call gossamer\.decentralize afterwards"
CONVERTED = r"convert or move the model first and call gossamer\.decentralize afterwards"
LEAVE = r"inside consensus\(\) would be about the average model; leave it first"

ROWS = {
    'model.to("cpu:0")': Row(copied(lambda model: model.to(torch.device("cpu", 0)))),
    "share_memory()": Row(copied(lambda model: model.share_memory())),
    "model.double()": Row(partial(changed, nn.Module.double), CONVERTED),
    "model.bfloat16()": Row(partial(changed, nn.Module.bfloat16), CONVERTED),
    "model.bfloat16().float()": Row(to_half_and_back),
    "load_state_dict(assign=True)": Row(
        partial(changed, lambda m: m.load_state_dict(small().state_dict(), assign=True)),
        r"load without assign=True, or " + r".*call gossamer\.decentralize afterwards",
    ),
    "a new head": Row(partial(changed, lambda m: m.__setitem__(2, nn.Linear(5, 3))), REPLACED),
    "weights of each worker's own": Row(
        loaded_per_worker, fine=lambda found: all(same(x, torch.full((6,), 3.0)) for x in found)
    ),
    "step() inside consensus()": Row(partial(inside_consensus, lambda o: o.step()), LEAVE),
    "consensus_distance() inside consensus()": Row(
        partial(inside_consensus, lambda o: o.consensus_distance()), LEAVE
    ),
    "load_state_dict() inside consensus()": Row(
        partial(inside_consensus, lambda o: o.load_state_dict(o.state_dict())), LEAVE
    ),
    "forgetting consensus()": Row(
        forgotten, fine=differ, warned=r"never entered: .* worker 0's own model, not the average of all"
    ),
    "a few steps without consensus()": Row(partial(forgotten, steps=MANY - 1), fine=differ),
    "stopped to be resumed": Row(stopped, fine=differ),
    "consensus() at the end": Row(partial(forgotten, entering=True), fine=differ),
    "consensus() inside consensus()": Row(nested, fine=are_averages),
    "bytes of evaluations": Row(evaluations_are_counted),
}


@pytest.mark.parametrize("name", ROWS)
def test_row(workers, name):
    workers.check(__name__, name, ROWS[name])
