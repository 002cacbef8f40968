"""The optimizer wrapper keeps what people expect of a torch optimizer."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

import gossamer
from gossamer.algorithms import DPSGD, AllReduce, Choco, PowerGossip
from gossamer.compress import Sign, TopK
from tests.support.problem import Model, advance, flat, sgd
from tests.support.threads import run_threads, seeded
from tests.support.training import CHOCO, batch, fit, small, wrap

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_alone_it_is_the_optimizer_inside(name):
    plain = small()
    inside = OPTIMIZERS[name](plain.parameters())
    fit(plain, inside, 20)
    for algorithm in (CHOCO, DPSGD()):
        wrapped = small()
        fit(wrapped, wrap(wrapped, inner=OPTIMIZERS[name](wrapped.parameters()), algorithm=algorithm), 20)
        assert torch.allclose(flat(plain), flat(wrapped), rtol=0, atol=1e-6)


def test_start_values_and_buffers_come_from_worker_0():
    def work(link):
        with seeded(link.rank):
            norm = nn.BatchNorm1d(4)
            model = nn.Sequential(nn.Linear(4, 4), norm)
        assert norm.running_mean is not None
        assert norm.num_batches_tracked is not None
        norm.running_mean.fill_(float(link.rank))
        norm.num_batches_tracked.fill_(link.rank)
        wrap(model, link)
        return flat(model), norm.running_mean.clone(), int(norm.num_batches_tracked)

    results = run_threads(5, work)
    assert all(torch.equal(x, results[0][0]) for x, _, _ in results)
    assert all((mean == 0).all() and count == 0 for _, mean, count in results)


def test_a_start_that_all_have_is_not_sent():
    def work(link, odd):
        model = nn.Linear(100, 100)
        for p in model.parameters():
            nn.init.constant_(p, 0.5)
        if link.rank == odd:
            model.bias.data[7] += 1e-6
        wrap(model, link)
        return link.sent.total(), flat(model)

    model_bytes = 4 * 101 * 100
    for odd in (None, 0, 3):
        results = run_threads(5, partial(work, odd=odd))
        assert all(torch.equal(x, results[0][1]) for _, x in results)
        sent = sum(count for count, _ in results)
        assert sent > 4 * model_bytes if odd is not None else sent < model_bytes


def test_consensus_is_the_exact_average_for_a_while():
    def work(link):
        model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
        optimizer = wrap(model, link, buffers="local" if link.size == 2 else "average")
        fit(model, optimizer, 3, link.rank)
        before = copy.deepcopy(model.state_dict())
        distance = optimizer.consensus_distance()
        with optimizer.consensus():
            inside = copy.deepcopy(model.state_dict())
        assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
        return before, inside, distance

    for n in (2, 3):
        results = run_threads(n, work)
        for name in results[0][0]:
            mean = torch.stack([before[name].double() for before, _, _ in results]).mean(0)
            for before, inside, _ in results:
                local = "num_batches" in name or (n == 2 and "running" in name)
                expected = before[name].double() if local else mean
                assert torch.allclose(inside[name].double(), expected, rtol=0, atol=1e-6), name
        names = dict(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).named_parameters())
        rows = [torch.cat([before[name].reshape(-1).double() for name in names]) for before, _, _ in results]
        apart = torch.stack(rows) - torch.stack(rows).mean(0)
        assert results[0][2] == pytest.approx(float(apart.square().sum(1).mean().sqrt()), rel=1e-5)


def test_options_by_name_reach_the_algorithm():
    optimizer = wrap(
        small(), algorithm="choco", compressor="sign", gamma=0.4, order="combine-then-adapt", overlap=True
    )
    assert optimizer.algorithm == Choco(Sign(), 0.4, "combine-then-adapt")


def test_schedulers_closures_clipping_and_groups():
    model = small()
    inner = torch.optim.SGD(
        [{"params": model[0].parameters(), "lr": 0.5}, {"params": model[2].parameters()}],
        lr=0.1,
        momentum=0.9,
    )
    optimizer = wrap(model, inner=inner)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    x, y = batch()

    def closure():
        optimizer.zero_grad()
        loss = cross_entropy(model(x), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        return loss

    first = optimizer.step(closure)
    scheduler.step()
    assert [g["lr"] for g in inner.param_groups] == pytest.approx([0.05, 0.01])
    assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([0.05, 0.01])
    assert optimizer.step(closure) < first
    assert optimizer.state is inner.state


def test_lbfgs_gets_its_closure():
    with seeded():
        model, x = nn.Linear(4, 1), torch.randn(20, 4)
    y = x @ torch.tensor([[1.0], [2.0], [-1.0], [0.5]])
    optimizer = wrap(model, inner=torch.optim.LBFGS(model.parameters(), max_iter=20))

    def closure():
        optimizer.zero_grad()
        loss = mse_loss(model(x), y)
        loss.backward()
        return loss

    for _ in range(3):
        optimizer.step(closure)
    assert closure() < 1e-6


@pytest.mark.parametrize(("every", "overlap"), [(1, 1), (3, 1), (3, 3), (5, 2)])  # 4 steps may end a flight
@pytest.mark.parametrize(
    "algorithm", [CHOCO, PowerGossip(), DPSGD(), Choco(TopK(0.25), 0.3, "combine-then-adapt")]
)
def test_a_checkpoint_goes_on_bit_for_bit(algorithm, every, overlap, tmp_path):
    wrapped = partial(
        wrap, algorithm=algorithm, every=every, overlap=overlap if algorithm.sends_before_gradient else 0
    )

    def straight(link):
        model = Model()
        advance(model, wrapped(model, link), 9)
        return flat(model)

    def saving(link):
        model = Model()
        optimizer = wrapped(model, link)
        advance(model, optimizer, 4)
        torch.save((model.state_dict(), optimizer.state_dict()), tmp_path / f"{link.rank}.pt")
        advance(model, optimizer, 2, first=4)  # what happens after saving must not leak into the file
        optimizer.close()

    def resuming(link):
        model = Model()
        optimizer = wrapped(model, link)
        advance(model, optimizer, 1)  # a resumed run may even have a round under way
        parameters, state = torch.load(tmp_path / f"{link.rank}.pt", weights_only=True)
        model.load_state_dict(parameters)
        optimizer.load_state_dict(state)
        advance(model, optimizer, 5, first=4)
        return flat(model)

    expected = run_threads(3, straight)
    run_threads(3, saving)
    for a, b in zip(expected, run_threads(3, resuming), strict=True):
        assert torch.equal(a, b)


def test_a_checkpoint_of_another_worker_or_of_a_plain_optimizer_is_refused():
    model = Model()
    optimizer = wrap(model)
    state = optimizer.state_dict()
    state["gossamer"]["rank"] = 3
    with pytest.raises(ValueError, match="saved by worker 3"):
        optimizer.load_state_dict(state)
    with pytest.raises(ValueError, match="plain optimizer"):
        optimizer.load_state_dict(sgd(list(model.parameters())).state_dict())


def test_mixed_dtypes_frozen_and_tied_parameters_and_missing_gradients():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            with seeded():
                self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 3).double()
                self.frozen, self.unused = nn.Linear(6, 6), nn.Linear(2, 2)
            self.frozen.requires_grad_(False)
            self.tied = self.a.weight

        def forward(self, x):
            return self.b((self.frozen(self.a(x)) @ self.tied).double())

    def work(link, algorithm):
        model = Mixed()
        optimizer = wrap(model, link, torch.optim.Adam(model.parameters(), lr=0.05), algorithm=algorithm)
        unused = model.unused.weight.clone()
        fit(model, optimizer, 30, link.rank)
        assert torch.allclose(unused, model.unused.weight, rtol=0, atol=1e-5)  # averaging rounds
        return flat(model), optimizer.consensus_distance()

    for algorithm in (AllReduce(), CHOCO, DPSGD(), PowerGossip(), gossamer.algorithms.make("dcd", "qsgd:8")):
        results = run_threads(3, partial(work, algorithm=algorithm))
        assert results[0][1] < 0.5
        if isinstance(algorithm, AllReduce):
            assert all(torch.equal(results[0][0], x) for x, _ in results)


def test_gamma_is_found_once_and_told_to_all(caplog):
    def work(link):
        return wrap(small(), link, algorithm="choco", compressor="topk:0.1").algorithm.gamma

    with caplog.at_level("INFO", logger="gossamer"):
        found = run_threads(4, work)
    assert len(set(found)) == 1
    assert 0.1 < found[0] <= 1
    assert f"gamma = {found[0]:.4g}" in caplog.text


def test_frozen_parameters_come_from_worker_0_too():
    def work(link):
        frozen = nn.Linear(3, 3).requires_grad_(False)
        frozen.weight.fill_(float(link.rank + 1))
        model = nn.Sequential(frozen, nn.Linear(3, 2))
        wrap(model, link)
        return flat(model)

    results = run_threads(3, work)
    assert all(torch.equal(x, results[0]) for x in results)
    assert (results[0][:9] == 1).all()
