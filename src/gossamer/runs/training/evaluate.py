"""How good the models are: each worker's own, and the average of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.runs.training.crew import Crew

Metrics = dict[str, float]


@dataclass(frozen=True)
class Evaluation:
    """What was found at one step."""

    local: list[Metrics]  # of the workers in this process
    local_mean: Metrics  # over all workers
    average: Metrics | None  # of the average model; only worker 0 evaluates it
    consensus_distance: float  # sqrt(1/n sum_i |x_i - average|^2)


def evaluate(crew: Crew) -> Evaluation:
    """Judge the local models and the average one. All workers call it together."""
    before = crew.sent_besides
    local = [session.evaluate() for session in crew.sessions]
    rows = crew.gathered([list(metrics.values()) for metrics in local])
    local_mean = {name: sum(row[i] for row in rows) / crew.n for i, name in enumerate(local[0])}
    own, averages = average_model(crew)
    average = None
    if crew.sessions[0].rank == 0:
        with crew.sessions[0].wearing(averages[0]):
            average = crew.sessions[0].evaluate()
    distance = _distance(crew, own, averages)
    sent = zip(crew.sent_evaluating, before, crew.sent_besides, strict=True)
    crew.sent_evaluating = [total + after - earlier for total, earlier, after in sent]
    return Evaluation(local, local_mean, average, distance)


def average_model(crew: Crew) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
    """Return what every worker here has, and the average over all workers in the same form."""
    own = [session.read() for session in crew.sessions]
    columns = [crew.means(vectors) for vectors in zip(*own, strict=True)]
    return own, [list(vectors) for vectors in zip(*columns, strict=True)]


def _distance(crew: Crew, own: Sequence[list[Tensor]], averages: Sequence[list[Tensor]]) -> float:
    squared = []
    for session, mine, mean in zip(crew.sessions, own, averages, strict=True):
        total = torch.zeros(1, dtype=torch.float64)
        for v, m in list(zip(mine, mean, strict=True))[: session.parameter_vectors]:
            total += (v - m).double().square().sum().cpu()
        squared.append(total)
    return float(crew.means(squared)[0].sqrt())
