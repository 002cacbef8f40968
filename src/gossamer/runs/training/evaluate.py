"""How good the models are: each worker's own, and the average of all."""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    """Evaluate the local models and the average one. All workers call it together."""
    before = _asked(here)
    local = [learner.evaluate() for learner in here.learners]
    rows = here.together.gather([list(metrics.values()) for metrics in local])
    local_mean = {name: sum(row[i] for row in rows) / len(rows) for i, name in enumerate(local[0])}
    own, averages = average_model(here)
    average = None
    if here.speaks:
        with here.learners[0].with_values(averages[0]):
            average = here.learners[0].evaluate()
    count = here.learners[0].parameter_vectors  # without the buffers, which come after them
    distance = here.together.distance([xs[:count] for xs in own], [xs[:count] for xs in averages])
    distance = math.nan if here.independent else distance  # it has asked nobody
    sent = zip(here.sent_evaluating, before, _asked(here), strict=True)
    here.sent_evaluating = [total + after - earlier for total, earlier, after in sent]
    return Evaluation(local, local_mean, average, distance)


def average_model(here: LocalWorkers) -> tuple[list[list[Tensor]], list[list[Tensor]]]:
    """Return every local worker's values, and the average over all workers in the same form."""
    own = [learner.read() for learner in here.learners]
    columns = [here.together.average(vectors) for vectors in zip(*own, strict=True)]
    return own, [list(vectors) for vectors in zip(*columns, strict=True)]


def _asked(here: LocalWorkers) -> list[int]:
    return [asked.total() for asked in here.together.asked]
