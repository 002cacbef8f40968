"""What holds exactly, or in expectation, whatever the numbers: averages, replicas, special cases."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from gossamer import Simulation
from gossamer.algorithms import (
    DCD,
    DPSGD,
    ECD,
    Algorithm,
    AllReduce,
    Choco,
    DeepSqueeze,
    NaiveQuantized,
    Order,
    PowerGossip,
)
from gossamer.compress import QSGD, Identity, RandomK, TopK
from gossamer.rounds.drive import advance
from gossamer.topology import chain, ring, star
from tests.support.cases import COMPRESSED, COMPRESSORS, PLAIN, quiet

ATC: Order = "adapt-then-combine"
CTA: Order = "combine-then-adapt"
SMALL = {"w": (6, 5), "b": (5,)}


def draw(n: int, shapes=SMALL, seed: int = 0, dtype=torch.float64) -> list[dict[str, Tensor]]:
    rng = torch.Generator().manual_seed(seed)
    return [
        {
            name: torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)
            for name, shape in shapes.items()
        }
        for _ in range(n)
    ]


def training(algorithm: Algorithm, graph, *, lr=0.05, momentum=0.0, every=1, seed=0, dtype=torch.float64):
    """Return a run on f_i = 1/2 |x - a_i|^2, from 0, and the minimum of the mean of the f_i."""
    a = draw(graph.n, seed=1, dtype=dtype)
    start = {name: torch.zeros(shape, dtype=dtype) for name, shape in SMALL.items()}
    run = Simulation(
        start,
        graph,
        algorithm,
        gradient=lambda rank, p, step: {name: p[name].detach() - a[rank][name] for name in p},
        optimizer=lambda p: torch.optim.SGD(p, lr=lr, momentum=momentum),
        every=every,
        seed=seed,
    )
    return run, torch.stack([torch.cat([t.reshape(-1) for t in a_i.values()]) for a_i in a]).mean(0)


# The average.


KEEPERS = {
    "dpsgd": DPSGD(),
    "dpsgd-gamma": DPSGD(gamma=0.5),
    "powergossip": PowerGossip(),
    "powergossip-2": PowerGossip(rank=2, sub_steps=2),
    "powergossip-random": PowerGossip(warm=False),
    **{f"choco-{c}": quiet(partial(Choco, C, 0.05, x_hat="zero")) for c, C in COMPRESSORS.items()},
    **{f"deepsqueeze-{c}": DeepSqueeze(COMPRESSORS[c], 0.05) for c in ("topk-int8", "sign", "lowrank-1")},
}


@pytest.mark.parametrize("name", KEEPERS)
def test_gossip_keeps_the_average(name):
    graph = chain(2 if name.startswith("choco") else 3)  # two are enough where all compressors have a turn
    run = Simulation(draw(graph.n), graph, KEEPERS[name])
    before, largest = run.average(), 1.0
    for _ in range(200):
        run.step()
        largest = max(largest, float(run.x.abs().max()))  # where C is no contraction, x may well diverge
    assert (run.average() - before).abs().max() <= 1e-12 * largest


@pytest.mark.parametrize("compressor", ["topk", "sign", "qsgd-4bit"])
def test_naive_quantization_moves_the_average(compressor):
    """W keeps the average of what it mixes, which is C(x): the error of C goes straight into it."""
    C = COMPRESSORS[compressor]
    run = Simulation(draw(4), ring(4), quiet(lambda: NaiveQuantized(C)))
    before, worker = run.average(), run.nodes[0].workers[0]
    messages = tap(run)
    run.step()
    decoded = [C.decode(next(iter(sent.values())), worker.layout) for sent in messages]
    assert (run.average() - torch.stack(decoded).mean(0)).abs().max() <= 1e-12
    assert (run.average() - before).abs().max() > 1e-2


@pytest.mark.parametrize("kind", [DCD, ECD])
def test_dcd_and_ecd_keep_the_average_in_expectation(kind):
    """E x_mean moves as with exact messages iff C is unbiased; the noise is over 4000 entries of x."""
    slope = draw(4, {"w": (40, 100)}, seed=2)  # f_i = <slope_i, x>: linear, so that expectations pass through

    def bias(C) -> tuple[float, float]:
        run = Simulation(
            {"w": torch.zeros(40, 100, dtype=torch.float64)},
            ring(4),
            quiet(lambda: kind(C)),
            gradient=lambda rank, p, step: slope[rank],
            optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
        )
        run.run(8)
        exact = -0.8 * torch.stack([s["w"].reshape(-1) for s in slope]).mean(0)
        error = (run.average() - exact) * exact  # a shrinking C errs against the direction of the move
        return float(error.mean()), float(error.std() / error.numel() ** 0.5)

    assert abs(bias(Identity())[0]) < 1e-12
    for unbiased in (QSGD(4, bucket=64), RandomK(0.8, scaled=True)):
        mean, deviation = bias(unbiased)
        assert deviation > 0
        assert abs(mean) < 4 * deviation
    mean, deviation = bias(RandomK(0.5))
    assert mean < -10 * deviation


# Replicas.


def tap(run: Simulation) -> list[dict[int, Tensor]]:
    """Return a list in which every worker's last messages will be found."""
    last: list[dict[int, Tensor]] = [{} for _ in run.nodes]

    def tapped(rank, make):
        r = make()
        inbox = None
        while (phase := advance(r, inbox)) is not None:
            last[rank] = {j: message.clone() for j, message in phase.outbox().items()}
            inbox = yield phase

    for rank, node in enumerate(run.nodes):
        vars(node)["round"] = partial(tapped, rank, node.round)
    return last


@pytest.mark.parametrize(
    ("compressor", "every"), [*((c, 1) for c in COMPRESSORS), ("topk", 3), ("qsgd-4bit", 3)]
)
@pytest.mark.parametrize("name", ["dcd", "choco"])
def test_replicas_follow_from_the_messages_alone(name, compressor, every):
    """Whoever adds up what worker j sent has x_j (DCD) or x_hat_j (CHOCO), bit for bit, in float32."""
    C = COMPRESSORS[compressor]
    run, _ = training(COMPRESSED[name](C), ring(4), every=every, dtype=torch.float32)
    sent, replicas, layout = tap(run), list(run.x.clone()), run.nodes[0].workers[0].layout
    for _ in range(8):
        run.run(every)
        for rank, replica in enumerate(replicas):
            C.add(replica, next(iter(sent[rank].values())), layout)
            same = torch.equal(replica, run.x[rank] if name == "dcd" else run.state(rank).x_hat)
            assert same, f"worker {rank} is not what it has told"


def test_ecd_estimates_are_the_models_without_compression():
    run, _ = training(ECD(Identity()), ring(4))
    sent, estimates = tap(run), list(run.x)
    for t in range(1, 201):
        run.step()
        for rank, estimate in enumerate(estimates):
            z = Identity().decode(next(iter(sent[rank].values())), run.nodes[0].workers[0].layout)
            estimate.mul_(1 - 2 / t).add_(z, alpha=2 / t)
            assert (estimate - run.x[rank]).abs().max() < 1e-9


# Convergence.


SAME = [
    (Choco(Identity(), 1.0), DPSGD(ATC)),
    (Choco(Identity(), 1.0, x_hat="zero"), DPSGD(ATC)),
    (Choco(Identity(), 1.0, CTA), DPSGD(CTA)),
    (Choco(Identity(), 1.0, CTA, x_hat="zero"), DPSGD(CTA)),
    (Choco(Identity(), 0.6), DPSGD(ATC, 0.6)),
    (DeepSqueeze(Identity(), 0.6), DPSGD(ATC, 0.6)),
    (DCD(Identity()), DPSGD(CTA)),
    (NaiveQuantized(Identity()), DPSGD(CTA)),
    (ECD(Identity()), DPSGD(CTA)),
]


@pytest.mark.parametrize(("algorithm", "plain"), SAME, ids=str)
def test_without_compression_it_is_dpsgd(algorithm, plain):
    a, b = training(algorithm, star(4), momentum=0.9)[0], training(plain, star(4), momentum=0.9)[0]
    for _ in range(40):
        a.step()
        b.step()
        assert (a.x - b.x).abs().max() <= 1e-12


@pytest.mark.parametrize(("order", "frozen"), [(CTA, 0), (ATC, 2)])
def test_power_gossip_wakes_up_after_rounds_without_differences(order, frozen):
    """Equal models, or a layer that learns later: P = 0 then, and the directions must survive it."""

    def distance(order: Order, frozen: int) -> float:
        run, _ = training(PowerGossip(order=order), ring(4))
        learn = run._gradient
        run._gradient = lambda rank, p, step: {
            name: g * (step >= frozen) for name, g in learn(rank, p, step).items()
        }
        run.run(100)
        return run.consensus_distance()

    assert distance(order, frozen) < 1.5 * distance(ATC, 0)


def test_naive_quantization_stalls_where_dcd_and_choco_converge():
    C = QSGD(4)
    errors = {}
    for algorithm in (NaiveQuantized(C), DCD(C), quiet(lambda: Choco(C, 0.5))):
        run, optimum = training(algorithm, ring(4))
        run.run(160)
        tail = []
        for _ in range(20):
            run.step()
            tail.append(float((run.average() - optimum).square().sum()))
        errors[type(algorithm)] = np.mean(tail)
    assert errors[NaiveQuantized] > 1e5 * errors[DCD]
    assert errors[NaiveQuantized] > 1e5 * errors[Choco]


# Special cases.


def test_allreduce_is_sgd_on_the_mean_gradient():
    run, optimum = training(AllReduce(), ring(3), momentum=0.9)
    x = torch.nn.Parameter(torch.zeros_like(optimum))
    optimizer = torch.optim.SGD([x], lr=0.05, momentum=0.9)
    for _ in range(50):
        run.step()
        x.grad = x.detach() - optimum  # the mean of x - a_i
        optimizer.step()
        assert (run.x - x.detach()).abs().max() <= 1e-12


def test_allreduce_with_local_steps_is_local_sgd():
    run, optimum = training(AllReduce(), ring(3), every=4)
    a = torch.stack([torch.cat([t.reshape(-1) for t in a_i.values()]) for a_i in draw(3, seed=1)])
    x = torch.zeros_like(optimum)
    for _ in range(20):
        run.run(4)
        ends = x.repeat(3, 1)
        for _ in range(4):
            ends -= 0.05 * (ends - a)
        x = ends.mean(0)
        assert (run.x - x).abs().max() <= 1e-12


ALONE = PLAIN | {name: make(Identity()) for name, make in COMPRESSED.items()}
ALONE |= {
    f"{name}-topk": COMPRESSED[name](TopK(0.1)) for name in ("choco", "choco-overlapped", "deepsqueeze")
}


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("name", ALONE)
def test_one_worker_alone_is_its_optimizer(name, every):
    """CHOCO and DeepSqueeze even with lossy messages, as nobody reads them."""
    run, a = training(ALONE[name], ring(1), momentum=0.9, every=every)
    x = torch.nn.Parameter(torch.zeros_like(a))
    optimizer = torch.optim.SGD([x], lr=0.05, momentum=0.9)
    for _ in range(20):
        run.run(every)
        for _ in range(every):
            x.grad = x.detach() - a
            optimizer.step()
        assert (run.x[0] - x.detach()).abs().max() <= 1e-12
