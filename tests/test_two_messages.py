"""An algorithm with two messages per round, written outside the package: gradient tracking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from gossamer import Simulation
from gossamer._random import generator
from gossamer.algorithms import Algorithm
from gossamer.algorithms.replicas import Sum
from gossamer.compress import QSGD, Compressor, RandomK
from gossamer.compress.layout import Layout
from gossamer.rounds import StepsAndPhases, Worker
from gossamer.rounds.phase import Traffic
from gossamer.testing import check_algorithm
from gossamer.topology import ring

LAYOUT = Layout(("matrix", "bias"), ((4, 3), (5,)), torch.float64)
N, LR, SEED, GAMMA = 5, 0.05, 3, 0.3


@dataclass
class State:
    h: Sum  # of the models
    g: Sum  # of the tracked gradients
    v: Tensor  # this worker's estimate of the average gradient
    last: Tensor  # its own gradient of the round before


@dataclass(frozen=True)
class Beer(Algorithm):
    """BEER. Zhao et al. 2022, arXiv:2201.13320, Algorithm 1.

    A round begins with the gradient at x_t, so it does the second half of the paper's step t - 1 and the
    first half of step t; both messages leave together.
    """

    compressor: Compressor
    gamma: float = GAMMA
    varying_graphs: ClassVar[bool] = False

    def start(self, worker: Worker) -> State:
        zeros = [worker.zeros() for _ in range(5)]
        return State(Sum(worker.zeros().copy_(worker.x), zeros[0]), Sum(*zeros[1:3]), *zeros[3:])

    def round(self, worker: Worker, state: State) -> StepsAndPhases:
        C, x, v = self.compressor, worker.x, state.v
        gradient = worker.gradient()
        v.add_(state.g.r, alpha=self.gamma).add_(gradient - state.last)  #  V += gamma (W - I) G + grad - last
        state.last.copy_(gradient)
        worker.set_gradient(v.to(x.dtype))
        yield worker.step()  #                                              X -= eta V
        x.add_(state.h.r, alpha=self.gamma)  #                              X += gamma (W - I) H
        q_h = worker.encode(C, x - state.h.x_hat, "x")
        q_g = worker.encode(C, v - state.g.x_hat, "v")
        inbox = yield worker.exchange(q_h, q_g)
        state.h.absorb(worker, C, q_h, inbox)  #                              H += C(X - H)
        state.g.absorb(worker, C, q_g, inbox)  #                              G += C(V - G)


def targets() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(N, LAYOUT.size))


def matrices(C: Compressor, W: np.ndarray) -> Iterator[np.ndarray]:
    """Yield X after every round: the paper's equations in matrix form."""

    def rows(name: str, t: int, V: np.ndarray) -> np.ndarray:
        out = []
        for i, v in enumerate(V):
            rng = generator(SEED, "noise", t, i, 0, name)
            out.append(C.decode(C.encode(torch.from_numpy(v), LAYOUT, rng), LAYOUT).numpy())
        return np.stack(out)

    X = H = np.zeros((N, LAYOUT.size))
    G = V = last = np.zeros_like(X)
    for t in range(10**6):
        gradient = X - targets()
        V = V + GAMMA * (W @ G - G) + gradient - last
        last = gradient
        X = X - LR * V + GAMMA * (W @ H - H)
        H = H + rows("x", t, X - H)
        G = G + rows("v", t, V - G)
        yield X


def simulation(C: Compressor) -> Simulation:
    a = targets()

    def gradient(rank, parameters, step):
        x = np.concatenate([p.detach().numpy().ravel() for p in parameters.values()])
        return LAYOUT.views(torch.from_numpy(x - a[rank]))

    return Simulation(
        LAYOUT.views(torch.zeros(LAYOUT.size, dtype=torch.float64)),
        ring(N),
        Beer(C),
        gradient=gradient,
        optimizer=lambda p: torch.optim.SGD(p, lr=LR),
        seed=SEED,
    )


@pytest.mark.parametrize("compressor", [QSGD(8), RandomK(0.5)])
def test_the_matrix_form(compressor):
    run = simulation(compressor)
    for X in islice(matrices(compressor, ring(N).W), 30):
        run.step()
        assert np.abs(run.x.numpy() - X).max() <= 1e-12


def test_one_exchange_carries_both():
    run = simulation(QSGD(8))
    phases: list[Sequence[Traffic]] = []
    run.step(phases.append)
    assert len(phases) == 1, "one latency, not two"
    assert phases[0][0].sent == dict.fromkeys((1, 4), 2 * QSGD(8).nbytes(LAYOUT))


def test_it_tracks_the_average_gradient():
    """All workers come to the minimum of the average function, where local gradients are not 0."""
    run = simulation(QSGD(8))
    run.run(800)
    assert np.abs(run.x.numpy() - targets().mean(0)).max() < 1e-6
    v = torch.stack([run.state(i).v for i in range(N)]).mean(0)
    gradients = torch.stack([run.state(i).last for i in range(N)]).mean(0)
    assert torch.allclose(v, gradients, atol=1e-12), "their average is that of the gradients"


def test_it_keeps_the_contract():
    check_algorithm(Beer(QSGD(8)))
