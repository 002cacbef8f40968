"""What the wrapper says when it is used in a way that cannot work."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import gossamer
from gossamer.algorithms import DPSGD, Choco
from tests.support.problem import Model, gradients, sgd
from tests.support.training import CHOCO, small, wrap


def frozen():
    return small().requires_grad_(False)


def stranger():
    """Return a parameter that is in no model."""
    return nn.Parameter(torch.zeros(2))


@pytest.mark.parametrize(
    ("attempt", "complaint"),
    [
        (lambda: wrap(small(), inner=sgd([stranger()])), "not in the model"),
        (lambda: wrap(small(), algorithm=CHOCO, overlap=True), "combine-then-adapt"),
        (lambda: wrap(small(), algorithm="dpsgd", every=2, overlap=3), "from 0 to every=2"),
        (lambda: wrap(small(), algorithm="dpsgd", every=2, overlap=-1), "from 0 to every=2"),
        (lambda: wrap(small(), algorithm="dpsgd", every=2, overlap=1.0), "from 0 to every=2"),
        (lambda: wrap(small(), every=0), "every=0"),
        (lambda: wrap(small(), buffers="all"), "buffers='all'"),
        (lambda: wrap(small(), algorithm="chocco", compressor="sign"), "did you mean 'choco'"),
        (lambda: wrap(small(), algorithm="choco"), "choco needs a compressor"),
        (lambda: wrap(small(), algorithm="dpsgd", compressor="sign"), "dpsgd takes no compressor"),
        (lambda: wrap(small(), algorithm=CHOCO, gamma=0.1), "algorithm object itself"),
        (lambda: wrap(small(), algorithm=Choco), "such as"),
        (lambda: wrap(small(), algorithm="choco", compressor=0.01), "such as"),
        (lambda: wrap(frozen()), "no parameter"),
        (lambda: gossamer.decentralize(small(), sgd([stranger()])), "optimizer first"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_wrapped_is_refused(attempt, complaint):
    with pytest.raises(ValueError, match=complaint):
        attempt()


@pytest.mark.parametrize("gamma", [True, "auto", 3.0])
def test_gamma_is_a_number_that_can_be_meant(gamma):
    with pytest.raises(ValueError, match="gamma="):
        DPSGD(gamma=gamma)


def test_a_wrapped_optimizer_is_not_wrapped_again():
    model = small()
    optimizer = wrap(model)
    with pytest.raises(ValueError, match="decentralized already"):
        wrap(model, inner=optimizer)


def test_parameters_are_not_added_after_wrapping():
    optimizer = wrap(small())
    with pytest.raises(ValueError, match=r"before gossamer\.decentralize"):
        optimizer.add_param_group({"params": [stranger()]})


def test_workers_of_all_reduce_start_at_one_point():
    with pytest.raises(ValueError, match="same start values"):
        gossamer.Simulation([{"x": torch.ones(3)}, {"x": torch.zeros(3)}], "ring", "allreduce")


@pytest.mark.parametrize("copying", [copy.deepcopy, pickle.dumps])
def test_copies_of_the_optimizer_are_refused(copying):
    optimizer = wrap(small())
    with pytest.raises(TypeError, match="state_dict"):
        copying(optimizer)


def test_step_inside_consensus_is_refused():
    model = small()
    optimizer = wrap(model)
    with optimizer.consensus(), pytest.raises(ValueError, match="inside consensus"):
        optimizer.step()


def test_a_model_converted_after_wrapping_is_refused():
    model = small()
    optimizer = wrap(model)
    model.double()
    with pytest.raises(ValueError, match=r"'0\.weight' was .*float32 on cpu .* is .*float64 on cpu now"):
        optimizer.step()


def test_a_layer_unfrozen_after_wrapping_is_refused():
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
    spoiled = model.get_parameter("matrix").grad
    assert spoiled is not None
    spoiled[2, 3] = float("inf")
    with pytest.raises(ValueError, match="'matrix' holds -inf; nothing was sent"):
        optimizer.step()
