"""A run that was stopped and resumed equals one that was not, in whatever order things are loaded."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from gossamer.algorithms import Choco
from gossamer.compress import Sign
from tests.support.cases import COMPRESSED, COMPRESSORS, PLAIN
from tests.support.problem import flat
from tests.support.threads import run_threads
from tests.support.training import CHOCO, batch, through_a_file, wrap

ALGORITHMS = {name: make(COMPRESSORS["qsgd-4bit"]) for name, make in COMPRESSED.items()} | PLAIN
ORDERS = ["weights first", "weights after the wrap", "weights last", "no weights", "average first"]


def network():
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    generator = torch.Generator().manual_seed(0)
    for p in model.parameters():
        p.data = torch.randn(p.shape, generator=generator)
    return model


def fit(model, optimizer, first, steps):
    for step in range(first, first + steps):
        x, y = batch(optimizer.rank, step)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


def began(link, algorithm, **options):
    model = network()
    return model, wrap(
        model, link, torch.optim.Adam(model.parameters(), lr=0.03), algorithm=algorithm, **options
    )


def everything(model, optimizer):
    buffers = torch.cat([b.detach().double().reshape(-1) for b in model.buffers()])
    return flat(model), buffers, optimizer.rounds, dict(optimizer.sent), optimizer.consensus_bytes_sent


def same(a, b):
    return torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) and a[2:] == b[2:]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_resumed_run_has_the_same_bits_in_every_order_of_loading(name, order):
    def work(link):
        model, optimizer = began(link, ALGORITHMS[name])
        fit(model, optimizer, 0, 3)
        with optimizer.consensus():
            average = through_a_file(model.state_dict())
        weights, state = through_a_file(model.state_dict()), through_a_file(optimizer.state_dict())
        fit(model, optimizer, 3, 3)
        expected = everything(model, optimizer)

        model = network()
        if order == "weights first":
            model.load_state_dict(weights)
        if order == "average first":
            model.load_state_dict(average)
        optimizer = wrap(
            model, link, torch.optim.Adam(model.parameters(), lr=0.03), algorithm=ALGORITHMS[name]
        )
        if order == "weights after the wrap":
            model.load_state_dict(weights)
        optimizer.load_state_dict(state)
        if order == "weights last":
            model.load_state_dict(weights)
        fit(model, optimizer, 3, 3)
        return same(everything(model, optimizer), expected)

    assert run_threads(3, work) == [True] * 3


@pytest.mark.parametrize("name", ["choco", "dpsgd", "powergossip"])
def test_resume_without_the_broadcast_sends_no_model(name):
    def work(link):
        model, optimizer = began(link, ALGORITHMS[name])
        fit(model, optimizer, 0, 3)
        weights, state = through_a_file(model.state_dict()), through_a_file(optimizer.state_dict())
        fit(model, optimizer, 3, 2)
        expected = everything(model, optimizer)
        model = network()
        model.load_state_dict(weights)
        inner, before = torch.optim.Adam(model.parameters(), lr=0.03), link.sent.total()
        optimizer = wrap(model, link, inner, algorithm=ALGORITHMS[name], broadcast=False)
        kept = all(torch.equal(v, weights[k]) for k, v in model.state_dict().items())
        assert kept, "the wrap has overwritten this worker's weights"
        optimizer.load_state_dict(state)
        fit(model, optimizer, 3, 2)
        return same(everything(model, optimizer), expected), link.sent.total() - before

    assert all(equal for equal, _ in run_threads(3, work))


def test_without_broadcast_and_checkpoint_different_starts_are_refused_where_they_matter():
    def work(link):
        model = nn.Linear(4, 3)
        nn.init.constant_(model.weight, float(link.rank))
        optimizer = wrap(model, link, algorithm=CHOCO, broadcast=False)
        with pytest.raises(ValueError, match=r"load each worker's checkpoint .* or wrap without"):
            optimizer.step()
        wrap(model, link, algorithm=Choco(Sign(), 0.3, x_hat="zero"), broadcast=False).step()
        return model.weight[0, 0].item()

    assert run_threads(2, work) != [0.0, 0.0]


@pytest.mark.parametrize(
    ("options", "field"),
    [({"every": 2}, "every"), ({"seed": 3}, "seed"), ({"topology": "complete"}, "topology")],
)
def test_a_checkpoint_of_another_run_is_refused_with_the_difference(options, field):
    def made(**options):
        return wrap(network(), algorithm="choco", compressor="topk:0.25", gamma=0.3, **options)

    saved = made().state_dict()
    with pytest.raises(ValueError, match=f"made with {field} = "):
        made(**options).load_state_dict(saved)
    made().load_state_dict(saved)


def test_weights_that_do_not_belong_to_the_loaded_state_are_refused():
    def work(link):
        model, optimizer = began(link, CHOCO)
        fit(model, optimizer, 0, 3)
        with optimizer.consensus():
            average = copy.deepcopy(model.state_dict())
        state = copy.deepcopy(optimizer.state_dict())
        optimizer.load_state_dict(state)
        model.load_state_dict(average)
        with pytest.raises(ValueError, match=r"'0\.weight' was changed after optimizer\.load_state_dict"):
            fit(model, optimizer, 3, 1)
        optimizer.load_state_dict(state)
        fit(model, optimizer, 3, 1)
        return optimizer.rounds

    assert run_threads(3, work) == [4] * 3


def test_the_state_inside_consensus_is_the_one_that_runs():
    def work(link):
        model, optimizer = began(link, CHOCO)
        fit(model, optimizer, 0, 3)
        outside = copy.deepcopy(optimizer.state_dict())
        with optimizer.consensus():
            average = flat(model).clone()
            inside = copy.deepcopy(optimizer.state_dict())
            assert torch.equal(flat(model), average), "asking for the state has changed the model"
            with pytest.raises(ValueError, match="inside consensus"):
                optimizer.load_state_dict(inside)
            with pytest.raises(ValueError, match="inside consensus"):
                optimizer.consensus_distance()
            before = link.sent.total()
            with optimizer.consensus():
                assert torch.equal(flat(model), average)
            assert link.sent.total() == before, "the average was there already"
            assert torch.equal(flat(model), average)
        own = [outside["gossamer"]["parameters"][0], inside["gossamer"]["parameters"][0]]
        assert torch.equal(*own)
        assert torch.equal(own[0], flat(model))
        names = outside["gossamer"]["buffers"]
        return all(torch.equal(b, inside["gossamer"]["buffers"][name]) for name, b in names.items())

    assert run_threads(3, work) == [True] * 3


def test_what_consensus_sends_is_counted_beside_training():
    def work(link):
        model, optimizer = began(link, "dpsgd")
        fit(model, optimizer, 0, 2)
        training, d = optimizer.bytes_sent, flat(model).numel()
        with optimizer.consensus():
            pass
        first = optimizer.consensus_bytes_sent
        exact = optimizer.consensus_distance()
        second = optimizer.consensus_bytes_sent - first
        estimate = optimizer.consensus_distance(estimate=True)
        third = optimizer.consensus_bytes_sent - first - second
        assert optimizer.bytes_sent == training
        return d, first, second, third, exact, estimate

    for d, first, second, third, exact, estimate in run_threads(4, work):
        whole = 8 * d * 3 / 4  # a ring all-reduce of float32, n = 4
        assert whole <= second < whole + 300, "a header for each of six messages, and one number"
        assert first > second, "BatchNorm's statistics too"
        assert third < 1200
        assert 0.5 * exact < estimate < 2 * exact


def test_a_number_averaged_over_all_workers():
    def work(link):
        _, optimizer = began(link, "dpsgd")
        return optimizer.mean(float(link.rank) ** 2 / 3)

    for n in (1, 2, 5):
        means = run_threads(n, work)
        assert len(set(means)) == 1
        assert means[0] == pytest.approx(sum(i**2 / 3 for i in range(n)) / n)
