"""The library beside its oracle: both run on one problem in float64 and are compared after every round."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import numpy as np
import torch

from gossamer import Simulation
from gossamer._random import generator
from gossamer.algorithms import Algorithm, PowerGossip
from gossamer.algorithms.edges import draw_factors
from gossamer.compress import Compressor
from gossamer.compress.layout import Layout
from gossamer.rounds.worker import Worker
from gossamer.topology import (
    Schedule,
    Topology,
    from_edges,
    ring,
)
from tests.support import oracle
from tests.support.cases import COMPRESSED, COMPRESSORS, PLAIN

ROUNDS, TOLERANCE, LR, SEED = 50, 1e-10, 0.05, 7
CHAINED = 5  # rounds that warm PowerGossip is followed for without help: rounding errors grow tenfold in each
LAYOUT = Layout(("weight", "kernel", "bias"), ((5, 4), (3, 2, 2), (4,)), torch.float64)
ATC, CTA = oracle.ADAPT_FIRST, oracle.COMBINE_FIRST
GRAPHS = {
    "ring": ring(4),
    "irregular": from_edges([(0, 1), (0, 2), (0, 3), (1, 2), (3, 4)]),
}

# The oracle of every row of cases.py: from a task and a compressor, or from a task and a draw of edges.
ORACLES = {
    "allreduce-quantized": oracle.allreduce,
    "naive": oracle.naive,
    "dcd": oracle.dcd,
    "ecd": oracle.ecd,
    "choco": lambda task, C: oracle.choco(task, C, 0.3),
    "choco-zero": lambda task, C: oracle.choco(task, C, 0.3, x_hat="zero"),
    "choco-overlapped": lambda task, C: oracle.choco(task, C, 0.3, CTA),
    "deepsqueeze": lambda task, C: oracle.deep_squeeze(task, C, 0.1),
    "allreduce": lambda task, draw: oracle.allreduce(task),
    "dpsgd": lambda task, draw: oracle.dpsgd(task),
    "dpsgd-adapt-first": lambda task, draw: oracle.dpsgd(task, ATC),
    "dpsgd-gamma": lambda task, draw: oracle.dpsgd(task, gamma=0.5),
    "dpsgd-over": lambda task, draw: oracle.dpsgd(task, ATC, gamma=1.3),
    "powergossip": lambda task, draw: power_gossip(task, draw(1)),
    "powergossip-full": lambda task, draw: power_gossip(task, draw(8)),
    "powergossip-2": lambda task, draw: power_gossip(task, draw(2), sub_steps=2),
    "powergossip-random": lambda task, draw: power_gossip(task, draw(1), warm=False),
    "powergossip-overlapped": lambda task, draw: power_gossip(task, draw(1), sub_steps=3, order=CTA),
}
APART = {"naive", "choco-zero", "deepsqueeze", "dpsgd-gamma", "powergossip-overlapped"}  # own start points


def power_gossip(task, draw, **options):
    return oracle.power_gossip(task, LAYOUT.shapes, draw, **options)


def draw(rank: int):
    """The library's own Q, or P for odd c, of an edge: the one thing that the oracle cannot know."""
    matrices = [
        torch.zeros(shape[0], int(np.prod(shape[1:])), dtype=torch.float64) for shape in LAYOUT.shapes[:2]
    ]

    def factors(edge: oracle.Edge, c: int) -> oracle.Factors:
        lo, hi = edge
        worker = cast("Worker", SimpleNamespace(id=lo, seed=SEED, bucket=0))  # all that a draw looks at
        drawn = draw_factors(worker, hi, rank, c, matrices)
        return [(v.numpy(), v.numpy()) for v in drawn]  # one is read, the other computed from it

    return factors


def own(compressor: Compressor) -> oracle.Compress:
    """The library's compressor with the randomness that the worker of this rank has in this round."""

    def C(i: int, t: int, v: np.ndarray) -> np.ndarray:
        message = compressor.encode(torch.from_numpy(v), LAYOUT, generator(SEED, "noise", t, i))
        return compressor.decode(message, LAYOUT).numpy()

    return C


class Problem:
    """f_i = 1/2 (x - a_i)^T H_i (x - a_i), strongly convex, another minimum for every worker."""

    def __init__(self, n: int, *, apart: bool) -> None:
        rng, d = np.random.default_rng(n), LAYOUT.size
        A = rng.normal(size=(n, d, d)) / d**0.5
        self.H = 0.5 * np.eye(d) + 0.25 * A @ A.transpose(0, 2, 1)
        self.a = rng.normal(size=(n, d))
        self.X = rng.normal(size=(n, d)) if apart else np.tile(rng.normal(size=d), (n, 1))

    def G(self, X: np.ndarray) -> np.ndarray:
        return np.einsum("nij,nj->ni", self.H, X - self.a)

    def gradient(self, rank: int, parameters, step: int):
        x = np.concatenate([p.detach().numpy().ravel() for p in parameters.values()])
        return LAYOUT.views(torch.from_numpy(self.H[rank] @ (x - self.a[rank])))


class TorchOptimizers:
    """u of any torch optimizer, by stepping on copies."""

    def __init__(self, make, n: int) -> None:
        self.copies = [torch.nn.Parameter(torch.zeros(LAYOUT.size, dtype=torch.float64)) for _ in range(n)]
        self.optimizers = [make([p]) for p in self.copies]

    def __call__(self, X: np.ndarray, g: np.ndarray) -> np.ndarray:
        for p, optimizer, x, gradient in zip(self.copies, self.optimizers, X, g, strict=True):
            p.data.copy_(torch.from_numpy(x))
            p.grad = torch.from_numpy(gradient.copy())
            optimizer.step()
        return np.stack([p.detach().numpy() for p in self.copies]) - X


def check(
    algorithm: Algorithm,
    expected,
    graph: Topology | Schedule,
    *,
    every: int = 1,
    overlap: int = 0,
    rounds: int = ROUNDS,
    optimizer=None,
    apart: bool = False,
) -> None:
    """Run both and compare after every round; `expected` makes the oracle from a task."""
    problem = Problem(graph.n, apart=apart)
    simulation = Simulation(
        [LAYOUT.views(torch.from_numpy(x.copy())) for x in problem.X],
        graph,
        algorithm,
        gradient=problem.gradient,
        optimizer=optimizer or (lambda p: torch.optim.SGD(p, lr=LR)),
        every=every,
        overlap=overlap,
        seed=SEED,
    )
    displace = TorchOptimizers(optimizer, graph.n) if optimizer else oracle.sgd(LR)
    task = oracle.Task(problem.X, lambda t: graph.at(t).W, problem.G, displace, every, overlap or 1)
    xs = expected(task)
    X = next(xs)
    for t in range(rounds):
        simulation.run(every)
        worst = np.abs(simulation.x.numpy() - X).max()
        assert worst <= TOLERANCE, f"{worst:.1e} apart after round {t}"
        chaotic = isinstance(algorithm, PowerGossip) and algorithm.warm
        X = xs.send(library_state(simulation) if chaotic and t >= CHAINED else None)


def library_state(simulation: Simulation):
    """X, P and Q to set the oracle to.

    Warm power iteration is chaotic: two runs of the oracle itself that start 1e-15 apart are 1e-2 apart
    50 rounds later. So the first rounds are followed in one piece, the later ones compared one by one.
    """
    factors = {}
    for hi in range(simulation.n):
        for lo, edge in simulation.state(hi).edges.items():
            if lo < hi:
                other = simulation.state(lo).edges[hi]
                for a, b in zip([*edge.P, *edge.Q], [*other.P, *other.Q], strict=True):
                    assert torch.equal(a, b), "the two ends of an edge disagree"
                factors[lo, hi] = [(P.numpy(), Q.numpy()) for P, Q in zip(edge.P, edge.Q, strict=True)]
    return simulation.x.numpy(), factors


def check_case(name: str, compressor: str, graph: Topology | Schedule, **options) -> None:
    options.setdefault("apart", name in APART)
    if name in PLAIN:
        check(PLAIN[name], lambda task: ORACLES[name](task, draw), graph, **options)
    else:
        C = COMPRESSORS[compressor]
        check(COMPRESSED[name](C), lambda task: ORACLES[name](task, own(C)), graph, **options)


OPTIMIZERS = {
    "momentum": lambda p: torch.optim.SGD(p, lr=LR, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: torch.optim.Adam(p, lr=LR),
}
