"""Steps between two rounds are asked of the algorithm."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from gossamer import Simulation
from gossamer.algorithms import DPSGD
from gossamer.rounds import StepsAndPhases, Worker
from gossamer.topology import ring


@dataclass
class Corrected:
    correction: torch.Tensor


@dataclass(frozen=True)
class Correcting(DPSGD):
    """Adds a correction to every local gradient, as SCAFFOLD and gradient tracking do."""

    def start(self, worker: Worker) -> Any:
        return Corrected(torch.full_like(worker.x, float(worker.id)))

    def local(self, worker: Worker, state: Any) -> StepsAndPhases:
        worker.set_gradient(worker.gradient() + state.correction)
        yield worker.step()


@dataclass(frozen=True)
class Talking(DPSGD):
    """Exchanges in a local step, which it may not."""

    def local(self, worker: Worker, state: Any) -> StepsAndPhases:
        yield worker.exchange()


def run(algorithm: DPSGD, every: int, steps: int) -> torch.Tensor:
    simulation = Simulation(
        {"x": torch.zeros(3)},
        ring(2),
        algorithm,
        gradient=lambda rank, parameters, step: {"x": torch.ones(3)},
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5),
        every=every,
    )
    simulation.run(steps)
    return simulation.x[:, 0]


def test_local_steps_are_the_algorithms_own():
    # two local steps of each round move worker i by -0.5 (1 + i), the third one, the round's, by -0.5
    assert torch.equal(run(Correcting(), every=3, steps=2), torch.tensor([-1.0, -2.0]))
    assert torch.equal(run(Correcting(), every=3, steps=3), torch.tensor([-2.0, -2.0]))
    assert torch.equal(run(DPSGD(), every=3, steps=2), torch.tensor([-1.0, -1.0]))


def test_a_local_step_has_no_messages():
    with pytest.raises(AssertionError, match="not in local steps"):
        run(Talking(), every=2, steps=1)
