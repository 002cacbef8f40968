"""What torch does to a forward pass: autocast, torch.compile, gradient checkpointing."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from tests.support.problem import flat
from tests.support.single_process import fit, same, sgd, together, trains_like_torch, wrap
from tests.support.training import small
from tests.support.workers import Row

BFLOAT16 = 1e-4  # what a gradient of about 0.3, rounded to 8 bits, makes of a step of 0.1 of it


def autocast_forward(model, x, y):
    """One step of it can be compared: after that, weights that differ in the last bit may round apart."""
    with torch.autocast("cpu", torch.bfloat16):
        return cross_entropy(model(x), y)


def autocast_everywhere(rank):
    """Around the whole loop torch keeps the casts of the first step's weights, with one worker too."""
    model, alone = small(), small()
    optimizer = wrap(model)
    with torch.autocast("cpu", torch.bfloat16):
        fit(model, optimizer, 4, rank)
    with torch.autocast("cpu", torch.bfloat16):
        together(alone, sgd(alone), 4)
    return same(flat(model), flat(alone), 100 * BFLOAT16)


def compiled(model: nn.Module) -> nn.Module:
    made = torch.compile(model, backend="aot_eager")
    assert isinstance(made, nn.Module)
    return made


def compiled_before(rank):
    return trains_like_torch(rank, lambda: compiled(small()))


def compiled_after(rank):
    model, alone = small(), small()
    optimizer = wrap(model)
    fit(compiled(model), optimizer, 4, rank)
    return same(flat(model), together(alone, sgd(alone), 4))


def checkpointed(model, x, y):
    return cross_entropy(model[2](checkpoint(model[:2], x, use_reentrant=False)), y)


ROWS = {
    "autocast around the forward pass": Row(
        partial(trains_like_torch, loss=autocast_forward, steps=1, atol=10 * BFLOAT16)
    ),
    "autocast around the loop": Row(autocast_everywhere),
    "torch.compile before the wrap": Row(compiled_before),
    "torch.compile after the wrap": Row(compiled_after),
    "gradient checkpointing": Row(partial(trains_like_torch, loss=checkpointed)),
}


@pytest.mark.parametrize("name", ROWS)
def test_row(workers, name):
    workers.check(__name__, name, ROWS[name])
