"""How good the models are: each worker's own, and the average of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.runs.training.local_workers import LocalWorkers

Metrics = dict[str, float]


@dataclass(frozen=True)
class Evaluation:
    """What was found at one step."""

    local: list[Metrics]  # of the workers in this process
    local_mean: Metrics  # over all workers
    average: Metrics | None  # of the average model; only worker 0 evaluates it
    consensus_distance: float  # sqrt(1/n sum_i |x_i - average|^2)


def evaluate(here: LocalWorkers) -> Evaluation:
    """Judge the local models and the average one. All workers call it together."""
    before = here.sent_besides
    local = [learner.evaluate() for learner in here.learners]
    rows = here.gathered([list(metrics.values()) for metrics in local])
    local_mean = {name: sum(row[i] for row in rows) / here.n for i, name in enumerate(local[0])}
    own, averages = average_model(here)
    average = None
    if here.learners[0].rank == 0:
        with here.learners[0].with_values(averages[0]):
            average = here.learners[0].evaluate()
    distance = _distance(here, own, averages)
    sent = zip(here.sent_evaluating, before, here.sent_besides, strict=True)
    here.sent_evaluating = [total + after - earlier for total, earlier, after in sent]
    return Evaluation(local, local_mean, average, distance)


def average_model(here: LocalWorkers) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
    """Return what every worker here has, and the average over all workers in the same form."""
    own = [learner.read() for learner in here.learners]
    columns = [here.means(vectors) for vectors in zip(*own, strict=True)]
    return own, [list(vectors) for vectors in zip(*columns, strict=True)]


def _distance(here: LocalWorkers, own: Sequence[list[Tensor]], averages: Sequence[list[Tensor]]) -> float:
    squared = []
    for learner, mine, mean in zip(here.learners, own, averages, strict=True):
        total = torch.zeros(1, dtype=torch.float64)
        for v, m in list(zip(mine, mean, strict=True))[: learner.parameter_vectors]:
            total += (v - m).double().square().sum().cpu()
        squared.append(total)
    return float(here.means(squared)[0].sqrt())
