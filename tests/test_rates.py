"""How fast workers agree and learn: fitted rates, floors and speed-up against what theory gives."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from gossamer import Simulation
from gossamer.algorithms import DPSGD, Algorithm, Choco, DeepSqueeze, PowerGossip
from gossamer.compress import Identity, Sign, TopK
from gossamer.topology import chain, hypercube, one_peer_exponential, ring, social, star, torus


def gossip(algorithm: Algorithm, graph, rounds: int, shape=(6, 5)) -> np.ndarray:
    """Return the consensus distance before and after each round of averaging, the first being 1."""
    rng = torch.Generator().manual_seed(0)
    starts = [{"x": torch.randn(shape, generator=rng, dtype=torch.float64)} for _ in range(graph.n)]
    run = Simulation(starts, graph, algorithm)
    distances = [run.consensus_distance()]
    for _ in range(rounds):
        run.step()
        distances.append(run.consensus_distance())
    return np.array(distances) / distances[0]


# The second largest and the smallest eigenvalue of W, from closed forms and the papers.
EIGENVALUES = {
    "ring": (ring(8), (1 + 2 * math.cos(2 * math.pi / 8)) / 3, -1 / 3),
    "chain": (chain(6), 1 - (2 - 2 * math.cos(math.pi / 6)) / 3, 1 - (2 + 2 * math.cos(math.pi / 6)) / 3),
    "torus": (torus(16), 3 / 5, -3 / 5),
    "star": (star(8), 7 / 8, 0.0),
    "hypercube": (hypercube(8), 1 / 2, -1 / 2),
    "social": (social(32), 0.9179, -0.4343),
}
STEPS = [(graph, gamma) for graph in EIGENVALUES for gamma in (1.0, 0.5) if graph != "social"] + [
    ("social", 1.3)
]


def slope_of(distances: np.ndarray) -> tuple[float, float]:
    """Return the slope of log distance over the later rounds, and the largest residual of the line."""
    last = int((distances > 1e-11).sum())
    rounds = np.arange(last // 3, last)
    logs = np.log(distances[rounds])
    line = np.polyfit(rounds, logs, 1)
    return float(line[0]), float(np.abs(logs - np.polyval(line, rounds)).max())


@pytest.mark.parametrize(("graph", "gamma"), STEPS)
def test_dpsgd_contracts_at_the_rate_of_the_spectrum(graph, gamma):
    topology, lambda2, lambda_min = EIGENVALUES[graph]
    rate = max(abs(1 - gamma * (1 - lambda2)), abs(1 - gamma * (1 - lambda_min)))
    rounds = min(120, int(math.log(1e-10) / math.log(rate)))
    slope, residual = slope_of(gossip(DPSGD(gamma=gamma), topology, rounds))
    assert slope == pytest.approx(math.log(rate), rel=0.01)
    assert residual < 0.1


@pytest.mark.parametrize("gamma", [1.0, 0.5])
def test_choco_without_compression_contracts_as_dpsgd(gamma):
    topology, lambda2, _ = EIGENVALUES["ring"]
    slope, _ = slope_of(gossip(Choco(Identity(), gamma, x_hat="zero"), topology, 120))
    assert slope == pytest.approx(math.log(1 - gamma * (1 - lambda2)), rel=0.001)


@pytest.mark.parametrize(("n", "exact"), [(2, True), (8, True), (16, True), (6, False)])
def test_one_peer_exponential_averages_exactly_in_log2_n_rounds(n, exact):
    left = gossip(DPSGD(), one_peer_exponential(n), math.ceil(math.log2(n)))[-1]
    assert left < 1e-14 if exact else left > 1e-3


def test_power_gossip_of_full_rank_contracts_as_dpsgd():
    topology, lambda2, _ = EIGENVALUES["ring"]
    slope, _ = slope_of(gossip(PowerGossip(rank=6), topology, 60, (6, 6)))
    assert slope < 0.99 * math.log(lambda2)


def test_choco_with_topk_converges_linearly():
    distances = gossip(Choco(TopK(0.25), 0.3, x_hat="zero"), ring(4), 130, (10, 20))
    slope, residual = slope_of(distances)
    assert slope < -0.1
    assert residual < 0.5, "a straight line over many decades"
    assert distances[-1] < 1e-8


def test_deep_squeeze_has_a_floor_that_grows_with_gamma():
    floors = []
    for gamma in (0.1, 0.2, 0.4):
        squares = gossip(DeepSqueeze(Sign(), gamma), ring(4), 150, (20, 25)) ** 2
        floors.append(squares[-50:].mean())
        assert floors[-1] > 0.6 * squares[-100:-50].mean(), "it no longer falls"
    assert floors[0] > 1e-4
    assert all(b > 1.5 * a for a, b in pairwise(floors))


def test_warm_power_gossip_beats_random():
    warm, random = (gossip(PowerGossip(warm=warm), ring(8), 150, (20, 25))[-1] ** 2 for warm in (True, False))
    assert warm < random / 2


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
    left = gossip(algorithm, ring(8), 1000, (40, 50))[-1] ** 2
    assert expected / 10 < left < expected * 10


@pytest.mark.parametrize("algorithm", [DPSGD(), Choco(TopK(0.25), 0.4)], ids=str)
def test_linear_speed_up(algorithm):
    """Noisy gradients: the stationary error of the average model is lr/(2 - lr) sigma^2 / n."""
    lr, shape, sizes = 0.2, (1000,), (1, 2, 4, 8, 16, 32)
    errors = []
    for n in sizes:
        noise = torch.Generator().manual_seed(n)

        def gradient(rank, p, step, noise=noise):
            return {"x": p["x"].detach() + torch.randn(shape, generator=noise)}

        run = Simulation(
            {"x": torch.zeros(shape)},
            ring(n),
            algorithm,
            gradient=gradient,
            optimizer=lambda p: torch.optim.SGD(p, lr=lr),
        )
        run.run(15)
        squares = []
        for _ in range(6):
            run.run(5)
            squares.append(float(run.average().square().mean()))
        errors.append(np.mean(squares))
    assert errors[0] == pytest.approx(lr / (2 - lr), rel=0.1)
    assert np.polyfit(np.log(sizes), np.log(errors), 1)[0] == pytest.approx(-1, abs=0.1)
