"""What the wrapper says when it is used in a way that cannot work."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.problem import Model, gradients, sgd
from tests.training import CHOCO, small, wrap


def test_mistakes_are_explained():
    model = small()
    optimizer = wrap(model)
    with pytest.raises(ValueError, match="decentralized already"):
        wrap(model, inner=optimizer)
    with pytest.raises(ValueError, match=r"before gossamer\.decentralize"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
    with pytest.raises(ValueError, match="not in the model"):
        wrap(small(), inner=sgd([nn.Parameter(torch.zeros(2))]))
    with pytest.raises(ValueError, match="combine-then-adapt"):
        wrap(small(), algorithm=CHOCO, overlap=True)
    for overlap in (3, -1, 1.0):
        with pytest.raises(ValueError, match="from 0 to every=2"):
            wrap(small(), algorithm="dpsgd", every=2, overlap=overlap)
    with pytest.raises(ValueError, match="every=0"):
        wrap(small(), every=0)
    with pytest.raises(ValueError, match="buffers='all'"):
        wrap(small(), buffers="all")
    with pytest.raises(ValueError, match="did you mean 'choco'"):
        wrap(small(), algorithm="chocco", compressor="sign")
    with pytest.raises(ValueError, match="choco needs a compressor"):
        wrap(small(), algorithm="choco")
    with pytest.raises(ValueError, match="dpsgd takes no compressor"):
        wrap(small(), algorithm="dpsgd", compressor="sign")
    with pytest.raises(ValueError, match="algorithm object itself"):
        wrap(small(), algorithm=CHOCO, gamma=0.1)
    frozen = small()
    frozen.requires_grad_(False)
    with pytest.raises(ValueError, match="no parameter"):
        wrap(frozen)


def test_a_model_moved_or_unfrozen_after_wrapping_is_refused():
    model = small()
    optimizer = wrap(model)
    model.double()
    with pytest.raises(ValueError, match=r"'0\.weight' was .*float32 on cpu .* is .*float64 on cpu now"):
        optimizer.step()
    model = small()
    model[0].requires_grad_(False)
    optimizer = wrap(model)
    model[0].requires_grad_(True)
    with pytest.raises(ValueError, match=r"'0\.weight' was frozen"):
        optimizer.step()


def test_gradients_that_are_not_finite_stop_before_anything_is_sent():
    model = Model()
    optimizer = wrap(model, algorithm=CHOCO)
    for name, g in gradients(0, dict(model.named_parameters()), 0).items():
        model.get_parameter(name).grad = g.detach()
    model.matrix.grad[2, 3] = float("inf")
    with pytest.raises(ValueError, match="'matrix' holds -inf; nothing was sent"):
        optimizer.step()
