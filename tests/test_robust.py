"""What went wrong once, or could: failures in the middle, unequal workers, long runs, half precision."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

import gossamer
from gossamer import topology
from gossamer.algorithms import DCD, DPSGD, AllReduce, Choco, DeepSqueeze, PowerGossip
from gossamer.compress import QSGD, Sign, TopK
from gossamer.errors import GossamerError, PeerLost, PeerTimeout, WireError
from gossamer.testing import check_topology
from tests.problem import Model, advance, flat, sgd
from tests.threads import ThreadTransport, run_threads
from tests.training import CHOCO, batch, small, wrap


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [Choco(Sign(), 0.3), DCD(QSGD(8)), DeepSqueeze(Sign(), 0.05)])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-4), (torch.bfloat16, 0.05)])
def test_rounding_errors_do_not_carry_the_average_away(algorithm, dtype, most):
    """Train, then only gossip: the average must stay, however long."""
    targets = torch.randn(4, 300, generator=torch.Generator().manual_seed(0)).to(dtype)
    lr = [0.05]
    run = gossamer.Simulation(
        {"x": torch.zeros(300, dtype=dtype)},
        topology.ring(4),
        algorithm,
        gradient=lambda rank, p, step: {"x": lr[0] * (p["x"] - 1 - 0.1 * targets[rank])},
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
    )
    run.run(300)
    lr[0] = 0.0
    run.run(100)
    before = run.x.double().mean(0)
    run.run(400)
    moved = (run.x.double().mean(0) - before).norm() / before.norm()
    assert moved < most


class Failing(ThreadTransport):
    """Fails in a given phase: with a flipped bit, or as a peer that stays silent; the others lose it."""

    def __init__(self, link, phase, error):
        self.__dict__.update(link.__dict__)
        self.phase, self.error, self.failed = phase, error, False

    def collect(self, ticket, need, until):
        inbox = super().collect(ticket, need, until)
        if ticket.name == self.phase:
            self.failed = True
            self.leave()
            raise self.error
        return inbox


def test_after_a_failed_round_nothing_goes_on_until_a_checkpoint_is_loaded():
    def work(link):
        if link.rank == 1:
            link = Failing(link, "round 3, phase 1", WireError("corrupted", 0))
        model = Model()
        optimizer = wrap(model, link, algorithm=CHOCO)
        advance(model, optimizer, 2)
        saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
        if link.rank == 0:
            advance(model, optimizer, 1, first=2)
            return None
        with pytest.raises(WireError):
            advance(model, optimizer, 1, first=2)
        for use in (lambda: advance(model, optimizer, 1), optimizer.consensus_distance):
            with pytest.raises(GossamerError, match="an earlier exchange broke off"):
                use()
        model.load_state_dict(saved[0])
        optimizer.load_state_dict(saved[1])
        return optimizer.rounds

    assert run_threads(2, work) == [None, 2]


def test_a_consensus_that_fails_leaves_the_model_as_it_was():
    def work(link):
        if link.rank == 1:
            link = Failing(
                link, "average of all workers, phase 2", PeerTimeout(0, "p", 1.0, "did not answer")
            )
        model = Model()
        optimizer = wrap(model, link)
        advance(model, optimizer, 2)
        before = flat(model).clone()
        with pytest.raises(PeerTimeout if link.rank == 1 else PeerLost), optimizer.consensus():
            pass
        link.leave()
        assert link.rank != 1 or link.failed
        return torch.equal(before, flat(model))

    assert run_threads(3, work) == [True] * 3


def test_step_inside_consensus_is_refused():
    model = small()
    optimizer = wrap(model)
    with optimizer.consensus(), pytest.raises(ValueError, match="inside consensus"):
        optimizer.step()


def test_a_closure_without_a_value_is_evaluated_once():
    calls = []

    def work(link):
        model = small()
        optimizer = wrap(model, link, algorithm=AllReduce())

        def closure():
            calls.append(link.rank)
            optimizer.zero_grad()
            x, y = batch(link.rank)
            nn.functional.cross_entropy(model(x), y).backward()

        for _ in range(3):
            optimizer.step(closure)
        return flat(model)

    results = run_threads(2, work)
    assert torch.equal(*results)
    assert len(calls) == 6


def test_all_reduce_refuses_an_optimizer_that_wants_more_gradients():
    model, x = nn.Linear(4, 1), torch.randn(8, 4)
    optimizer = wrap(model, inner=torch.optim.LBFGS(model.parameters()), algorithm=AllReduce())

    def closure():
        optimizer.zero_grad()
        loss = mse_loss(model(x), x[:, :1])
        loss.backward()
        return loss

    with pytest.raises(ValueError, match="one gradient a step"):
        optimizer.step(closure)


def test_all_reduce_with_a_gradient_on_some_workers_only():
    def work(link):
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
        inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
        optimizer = wrap(model, link, inner, algorithm=AllReduce())
        for step in range(6):
            for i, p in enumerate(model.parameters()):
                p.grad = None if (i + link.rank) % 2 else torch.zeros_like(p) + (step % 2) * (i % 3)
            optimizer.step()
        return flat(model)

    results = run_threads(2, work)
    assert torch.equal(*results)


def test_a_checkpoint_of_another_run_is_refused_with_the_difference():
    def made(**options):
        model = Model()
        return wrap(model, algorithm="choco", compressor="topk:0.25", gamma=0.3, **options)

    saved = made().state_dict()
    for options, field in (
        ({"every": 2}, "every"),
        ({"seed": 3}, "seed"),
        ({"topology": "complete"}, "topology"),
    ):
        with pytest.raises(ValueError, match=f"made with {field} = "):
            made(**options).load_state_dict(saved)
    made().load_state_dict(saved)


def test_workers_with_other_optimizers_are_stopped():
    def work(link):
        model = Model()
        sgd_of = torch.optim.SGD(model.parameters(), lr=0.1 if link.rank else 0.2)
        with pytest.raises(gossamer.MismatchError, match=r"optimizer\.param_groups\[0\]\."):
            wrap(model, link, sgd_of)
        return True

    assert run_threads(3, work) == [True] * 3


def test_workers_with_another_optimizer_state_are_stopped():
    def work(link):
        model = Model()
        inner = torch.optim.Adam(model.parameters())
        for p in model.parameters():
            p.grad = torch.full_like(p, 1.0 + (link.rank == 2))
        inner.step()
        with pytest.raises(gossamer.MismatchError, match=r"worker 2 differs in 'optimizer\.state'"):
            wrap(model, link, inner)
        return True

    assert run_threads(3, work) == [True] * 3


def test_copies_of_the_optimizer_are_refused():
    optimizer = wrap(small())
    for copying in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="state_dict"):
            copying(optimizer)


def test_power_gossip_in_half_precision():
    starts = [{"x": torch.randn(8, 6, generator=torch.Generator().manual_seed(i)).half()} for i in range(4)]
    run = gossamer.Simulation(starts, "ring", PowerGossip(rank=2))
    before = run.consensus_distance()
    run.run(30)
    assert run.consensus_distance() < 0.2 * before


@pytest.mark.slow
def test_gamma_found_for_small_tensors_and_raw_policies_is_stable():
    ring = topology.ring(8)
    assert gossamer.tune_gamma(Choco(TopK(0.01, raw=4096)), ring) == gossamer.tune_gamma(
        Choco(TopK(0.01)), ring
    )
    tensors = [torch.randn(19, generator=torch.Generator().manual_seed(i)) for i in range(8)]
    results = gossamer.simulate_average(tensors, algorithm="choco", compressor="topk:0.1")
    assert results[0].converged


def test_what_cannot_average_says_so():
    for name in ("allreduce", "naive", "dcd"):
        compressor = None if name == "allreduce" else "qsgd:8"
        with pytest.raises(ValueError, match="cannot average"):
            gossamer.simulate_average([torch.ones(3), torch.zeros(3)], algorithm=name, compressor=compressor)
    with pytest.raises(ValueError, match="same start values"):
        gossamer.Simulation([{"x": torch.ones(3)}, {"x": torch.zeros(3)}], "ring", "allreduce")
    with pytest.raises(ValueError, match="one shape"):
        gossamer.simulate_average([torch.ones(3), torch.zeros(4)], algorithm="dpsgd")


def test_large_graphs_are_connected_and_disconnected_schedules_are_found():
    check_topology(topology.ring(300))
    for n in range(1, 8):
        check_topology(topology.make("random-regular", n))
        check_topology(topology.make("Small_World", n))


def test_names_and_options():
    optimizer = wrap(
        small(), algorithm="choco", compressor="sign", gamma=0.4, order="combine-then-adapt", overlap=True
    )
    assert optimizer.algorithm == Choco("sign", 0.4, "combine-then-adapt")
    with pytest.raises(ValueError, match="optimizer first"):
        gossamer.decentralize(small(), sgd([nn.Parameter(torch.zeros(1))]))
    for wrong in ({"algorithm": Choco}, {"algorithm": "choco", "compressor": 0.01}):
        with pytest.raises(ValueError, match="such as"):
            wrap(small(), **wrong)
    for gamma in (True, "auto", 3.0):
        with pytest.raises(ValueError, match="gamma="):
            DPSGD(gamma=gamma)


def test_mixed_precision_models_keep_training():
    model = small().to(torch.bfloat16)
    optimizer = wrap(model, algorithm=CHOCO)
    x, y = batch()
    first = None
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.bfloat16()).float(), y)
        loss.backward()
        optimizer.step()
        first = first or float(loss.detach())
    assert float(loss.detach()) < first
