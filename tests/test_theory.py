"""What the theorems promise, measured: averages, rates, floors, replicas, speed-up."""

from __future__ import annotations

import math
from itertools import pairwise

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
    PowerGossip,
)
from gossamer.compress import QSGD, Identity, RandomK, Sign, TopK
from gossamer.lockstep import advance
from gossamer.topology import chain, hypercube, one_peer_exponential, ring, social, star, torus
from tests.cases import COMPRESSED, COMPRESSORS, PLAIN, quiet

ATC, CTA = "adapt-then-combine", "combine-then-adapt"
SMALL = {"w": (6, 5), "b": (5,)}
STUDY = {"w": (40, 50)}  # of the study in the guide


def draw(n: int, shapes=SMALL, seed: int = 0, dtype=torch.float64) -> list[dict[str, Tensor]]:
    rng = torch.Generator().manual_seed(seed)
    return [
        {
            name: torch.randn(shape, generator=rng, dtype=torch.float64).to(dtype)
            for name, shape in shapes.items()
        }
        for _ in range(n)
    ]


def gossip(algorithm: Algorithm, graph, rounds: int, shapes=SMALL) -> np.ndarray:
    """Return the consensus distance before and after each round of averaging, the first being 1."""
    run = Simulation(draw(graph.n, shapes), graph, algorithm)
    distances = [run.consensus_distance()]
    for _ in range(rounds):
        run.step()
        distances.append(run.consensus_distance())
    return np.array(distances) / distances[0]


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
    **{f"choco-{c}": quiet(lambda C=C: Choco(C, 0.05, x_hat="zero")) for c, C in COMPRESSORS.items()},
    **{f"deepsqueeze-{c}": quiet(lambda C=C: DeepSqueeze(C, 0.05)) for c, C in COMPRESSORS.items()},
}


@pytest.mark.parametrize("name", KEEPERS)
def test_gossip_keeps_the_average(name):
    run = Simulation(draw(3), chain(3), KEEPERS[name])
    before = run.average()
    run.run(200)
    assert (run.average() - before).abs().max() <= 1e-12


@pytest.mark.parametrize("compressor", ["topk", "sign", "qsgd-4bit"])
def test_naive_quantization_moves_the_average(compressor):
    """W keeps the average of what it mixes, which is C(x): the error of C goes straight into it."""
    C = COMPRESSORS[compressor]
    run = Simulation(draw(4), ring(4), quiet(lambda: NaiveQuantized(C)))
    before, worker = run.average(), run.members[0].workers[0]
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


# Rates.

# The second largest and the smallest eigenvalue of W, from closed forms and the guide.
EIGENVALUES = {
    "ring": (ring(8), (1 + 2 * math.cos(2 * math.pi / 8)) / 3, -1 / 3),
    "ring-16": (ring(16), 0.9493, -1 / 3),
    "chain": (chain(6), 1 - (2 - 2 * math.cos(math.pi / 6)) / 3, 1 - (2 + 2 * math.cos(math.pi / 6)) / 3),
    "torus": (torus(16), 3 / 5, -3 / 5),
    "star": (star(8), 7 / 8, 0.0),
    "hypercube": (hypercube(8), 1 / 2, -1 / 2),
    "social": (social(32), 0.9179, -0.4343),
}


def slope_of(distances: np.ndarray) -> tuple[float, float]:
    """Return the slope of log distance over the later rounds, and the largest residual of the line."""
    last = int((distances > 1e-11).sum())
    rounds = np.arange(last // 3, last)
    logs = np.log(distances[rounds])
    line = np.polyfit(rounds, logs, 1)
    return float(line[0]), float(np.abs(logs - np.polyval(line, rounds)).max())


@pytest.mark.parametrize("gamma", [1.0, 0.5])
@pytest.mark.parametrize("graph", EIGENVALUES)
def test_dpsgd_contracts_at_the_rate_of_the_spectrum(graph, gamma):
    topology, lambda2, lambda_min = EIGENVALUES[graph]
    rate = max(abs(1 - gamma * (1 - lambda2)), abs(1 - gamma * (1 - lambda_min)))
    slope, residual = slope_of(gossip(DPSGD(gamma=gamma), topology, 120))
    assert slope == pytest.approx(math.log(rate), rel=0.02)
    assert residual < 0.1


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_choco_without_compression_contracts_as_dpsgd(gamma):
    topology, lambda2, _ = EIGENVALUES["ring"]
    slope, _ = slope_of(gossip(Choco(Identity(), gamma, x_hat="zero"), topology, 120))
    assert slope == pytest.approx(math.log(1 - gamma * (1 - lambda2)), rel=0.01)


@pytest.mark.parametrize(("n", "exact"), [(2, True), (8, True), (16, True), (6, False)])
def test_one_peer_exponential_averages_exactly_in_log2_n_rounds(n, exact):
    left = gossip(DPSGD(), one_peer_exponential(n), math.ceil(math.log2(n)))[-1]
    assert left < 1e-14 if exact else left > 1e-3


def test_power_gossip_of_full_rank_contracts_as_dpsgd():
    topology, lambda2, _ = EIGENVALUES["ring"]
    slope, _ = slope_of(gossip(PowerGossip(rank=6), topology, 100, {"w": (6, 6)}))
    assert slope < 0.98 * math.log(lambda2)


def test_choco_with_topk_converges_linearly():
    distances = gossip(Choco(TopK(0.25), 0.3, x_hat="zero"), ring(8), 400, {"w": (10, 20)})
    slope, residual = slope_of(distances)
    assert slope < -0.03
    assert residual < 0.5, "a straight line over many decades"
    assert distances[-1] < 1e-8


def test_deep_squeeze_has_a_floor_that_grows_with_gamma():
    floors = []
    for gamma in (0.05, 0.1, 0.2, 0.4):
        squares = gossip(DeepSqueeze(Sign(), gamma), ring(8), 400, {"w": (20, 25)}) ** 2
        floors.append(squares[-100:].mean())
        assert squares[-100:].mean() > 0.3 * squares[-200:-100].mean(), "it no longer falls"
    assert all(b > 1.5 * a for a, b in pairwise(floors))
    assert floors[0] > 1e-6


def test_warm_power_gossip_beats_random():
    warm, random = (
        gossip(PowerGossip(warm=warm), ring(8), 250, {"w": (20, 25)})[-1] for warm in (True, False)
    )
    assert warm < random / 3


@pytest.mark.study
@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (Choco(TopK(0.01), 0.0375, x_hat="zero"), 3.7e-7),
        (Choco(Sign(), 0.45, x_hat="zero"), 1e-4),
        (DeepSqueeze(Sign(), 0.05), 8e-4),
        (DeepSqueeze(Sign(), 0.4), 5e-2),
        (PowerGossip(), 6.5e-6),
        (PowerGossip(warm=False), 7e-5),
    ],
    ids=str,
)
def test_the_study_in_the_guide(algorithm, expected):
    """Ring 8, 40 x 50, 1000 rounds of averaging: what is left of the squared distance, its magnitude."""
    left = gossip(algorithm, ring(8), 1000, STUDY)[-1] ** 2
    assert expected / 10 < left < expected * 10


# Replicas.


def tap(run: Simulation) -> list[dict[int, Tensor]]:
    """Return a list in which every worker's last messages will be found."""
    last: list[dict[int, Tensor]] = [{} for _ in run.members]

    def tapped(rank, make):
        r = make()
        inbox = None
        while (post := advance(r, inbox)) is not None:
            last[rank] = {j: message.clone() for j, message in post.send.items()}
            inbox = yield post

    for rank, member in enumerate(run.members):
        member.round = lambda rank=rank, make=member.round: tapped(rank, make)
    return last


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("compressor", COMPRESSORS)
@pytest.mark.parametrize("name", ["dcd", "choco"])
def test_replicas_follow_from_the_messages_alone(name, compressor, every):
    """Whoever adds up what worker j sent has x_j (DCD) or x_hat_j (CHOCO), bit for bit, in float32."""
    C = COMPRESSORS[compressor]
    run, _ = training(COMPRESSED[name](C), ring(4), every=every, dtype=torch.float32)
    sent, replicas, layout = tap(run), list(run.x.clone()), run.members[0].workers[0].layout
    for _ in range(12):
        run.run(every)
        for rank, replica in enumerate(replicas):
            C.add(replica, next(iter(sent[rank].values())), layout)
            assert torch.equal(replica, run.x[rank] if name == "dcd" else run.state(rank).x_hat)


def test_ecd_estimates_are_the_models_without_compression():
    run, _ = training(ECD(Identity()), ring(4))
    sent, estimates = tap(run), list(run.x)
    for t in range(1, 201):
        run.step()
        for rank, estimate in enumerate(estimates):
            z = Identity().decode(next(iter(sent[rank].values())), run.members[0].workers[0].layout)
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
    a, b = training(algorithm, star(5), momentum=0.9)[0], training(plain, star(5), momentum=0.9)[0]
    for _ in range(50):
        a.step()
        b.step()
        assert (a.x - b.x).abs().max() <= 1e-12


def test_power_gossip_wakes_up_from_equal_models():
    """In the first overlapped round all differences are 0; directions must survive that."""
    apart = {order: training(PowerGossip(order=order), ring(4))[0] for order in (ATC, CTA)}
    for run in apart.values():
        run.run(100)
    assert apart[CTA].consensus_distance() < 1.5 * apart[ATC].consensus_distance()


def test_naive_quantization_stalls_where_dcd_and_choco_converge():
    C = QSGD(4)
    errors = {}
    for algorithm in (NaiveQuantized(C), DCD(C), quiet(lambda: Choco(C, 0.5))):
        run, optimum = training(algorithm, ring(8), lr=0.01)
        run.run(1000)
        tail = []
        for _ in range(50):
            run.step()
            tail.append(float((run.average() - optimum).square().sum()))
        errors[type(algorithm)] = np.mean(tail)
    assert errors[NaiveQuantized] > 100 * errors[DCD]
    assert errors[NaiveQuantized] > 100 * errors[Choco]


@pytest.mark.parametrize("algorithm", [DPSGD(), Choco(TopK(0.25), 0.4)], ids=str)
def test_linear_speed_up(algorithm):
    """Noisy gradients: the stationary error of the average model is lr/(2 - lr) sigma^2 / n."""
    lr, shape, sizes = 0.2, (200,), (1, 2, 4, 8, 16, 32)
    errors = []
    for n in sizes:
        noise = torch.Generator().manual_seed(n)
        run = Simulation(
            {"x": torch.zeros(shape)},
            ring(n),
            algorithm,
            gradient=lambda rank, p, step, noise=noise: {
                "x": p["x"].detach() + torch.randn(shape, generator=noise)
            },
            optimizer=lambda p: torch.optim.SGD(p, lr=lr),
        )
        run.run(30)
        squares = []
        for _ in range(10):
            run.run(8)
            squares.append(float(run.average().square().mean()))
        errors.append(np.mean(squares))
    assert errors[0] == pytest.approx(lr / (2 - lr), rel=0.15)
    assert np.polyfit(np.log(sizes), np.log(errors), 1)[0] == pytest.approx(-1, abs=0.15)


# Special cases.


@pytest.mark.parametrize("every", [1, 4])
def test_allreduce_is_sgd_on_the_mean_gradient_and_local_sgd(every):
    run, optimum = training(AllReduce(), ring(3), momentum=0.0, every=every)
    a = [torch.cat([t.reshape(-1) for t in a_i.values()]) for a_i in draw(3, seed=1)]
    x = torch.zeros_like(optimum)
    for _ in range(20):
        run.run(every)
        ends = [x.clone() for _ in a]
        for end, a_i in zip(ends, a, strict=True):
            for _ in range(every):
                end -= 0.05 * (end - a_i)
        x = torch.stack(ends).mean(0)
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
        assert (run.x[0] - x).abs().max() <= 1e-12
