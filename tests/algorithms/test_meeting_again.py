"""Workers of CHOCO that have drifted apart meet again, as two halves of a network do after a cut."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor

from gossamer.algorithms import Choco
from gossamer.algorithms.replicas import MOST, Replicas, bounded
from gossamer.compress import Compressor, Sign, TopK
from gossamer.compress.layout import Layout
from gossamer.rounds import View, Worker
from gossamer.rounds.drive import run_together, with_steps
from gossamer.topology import ring

N, ROUNDS = 8, 1000
LAYOUT = Layout(("matrix", "vector"), ((60, 50), (1000,)))
NOISE = 1e-4  # what training adds to every entry in a round


def apart() -> Tensor:
    """Return the models of two halves that differ by a little, and by much in one entry of a hundred."""
    half = 0.01 * torch.randn(LAYOUT.size, generator=torch.Generator().manual_seed(0))
    half[::100] *= 40
    return torch.stack([half if i < N // 2 else -half for i in range(N)])


def meet(C: Compressor, gamma: float, start: Tensor) -> Tensor:
    """Let workers that know each other by copies do rounds; return their models."""
    choco, models = Choco(C, gamma=gamma, memory="replicas"), start.clone()
    workers = [
        Worker(i, View.of(ring(N)), LAYOUT, x, partial(torch.zeros_like, x), lambda g: None, True)
        for i, x in enumerate(models)
    ]
    states = [Replicas(x.clone(), {}) for x in start]
    for worker, state in zip(workers, states, strict=True):
        for j in worker.neighbours:
            state.meet(worker, j, start[j].clone())
    noise = torch.Generator().manual_seed(1)

    def step(x: Tensor) -> None:
        x.add_(torch.randn(LAYOUT.size, generator=noise), alpha=NOISE)

    for _ in range(ROUNDS):
        rounds = zip(workers, states, strict=True)
        run_together({w.id: with_steps(choco.round(w, s), partial(step, w.x)) for w, s in rounds})
        for worker in workers:
            worker.t += 1
    return models


def distance(models: Tensor) -> float:
    return float((models - models.mean(0)).norm(dim=1).square().mean().sqrt())


@pytest.mark.slow
@pytest.mark.parametrize(("compressor", "gamma"), [(Sign(raw="never"), 1.0), (TopK(0.1, raw="never"), 0.3)])
def test_halves_that_have_drifted_apart_agree_again(compressor, gamma):
    start = apart()
    models = meet(compressor, gamma, start)
    assert distance(models) < 0.05 * distance(start)
    assert (models.mean(0) - start.mean(0)).abs().max() < 100 * NOISE, "the average moves by the noise only"


def test_both_ends_of_an_edge_are_bounded_alike():
    d = apart()[0]
    there, back = bounded(d.clone(), LAYOUT), bounded(-d, LAYOUT)
    assert torch.equal(there, -back)
    for part, whole in zip(LAYOUT.split(there), LAYOUT.split(d), strict=True):
        assert float(part.abs().max()) == pytest.approx(MOST * float(whole.abs().mean()))


def test_edges_of_the_common_start_are_not_bounded():
    worker = Worker(0, View.of(ring(N)), LAYOUT, apart()[0], torch.Tensor, lambda g: None, True)
    state = Replicas(apart()[0], {j: apart()[4] for j in worker.neighbours})
    exact = torch.zeros(LAYOUT.size)
    for w in (worker.weights[1], worker.weights[N - 1]):
        exact.add_(apart()[4] - apart()[0], alpha=w)
    assert torch.equal(state.disagreement(worker, Sign()), exact)
    state.meet(worker, 1, apart()[4])
    assert not torch.equal(state.disagreement(worker, Sign()), exact)
    assert torch.equal(state.disagreement(worker, TopK(0.1)), exact), "it sends the large ones first"
    state.part(worker, 1)
    assert not state.met
