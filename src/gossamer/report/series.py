"""The curves of a run: its training loss and its metric, over steps, bytes and time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gossamer.report.format import finite
from gossamer.runs.record import Line, Run

Array = NDArray[np.float64]
MOST_POINTS = 400  # more cannot be seen in a figure, and make a page large


@dataclass(frozen=True)
class Curve:
    """Values along a run, with the steps, the bytes sent per worker and the seconds.

    `low` and `high` are the least and the largest among workers.
    """

    step: Array
    bytes: Array
    seconds: Array
    value: Array
    low: Array
    high: Array

    def over(self, axis: str) -> Array:
        """Return one of the three axes."""
        return {"step": self.step, "bytes": self.bytes, "seconds": self.seconds}[axis]


def loss(run: Run) -> Curve:
    """Return the training loss, the mean of all workers at the steps that all have reached."""
    workers = [{line["step"]: line for line in own} for own in run.train.values() if own]
    steps = sorted(set.intersection(*(set(own) for own in workers))) if workers else []
    steps = steps[:: -(-len(steps) // MOST_POINTS)] if steps else []

    def column(key: str) -> Array:
        return _matrix(workers, steps, lambda line: line.get(key))

    values = column("loss")
    mean = values.mean(0) if steps else np.empty(0)
    low, high = (values.min(0), values.max(0)) if steps else (mean, mean)
    at = np.array(steps, dtype=float)
    sent, seconds = (column(key).mean(0) if steps else mean for key in ("bytes_sent", "seconds"))
    return Curve(at, sent, seconds, mean, low, high)


def metric(run: Run, which: str = "average") -> Curve:
    """Return the run's metric at every evaluation: of the "average" model, or the "local_mean"."""
    name = run.summary.metric
    lines = run.evaluations[:: -(-len(run.evaluations) // MOST_POINTS)] if run.evaluations else []
    value = _array(lines, lambda line: (line.get(which) or {}).get(name))
    step, sent, seconds = (_array(lines, itemgetter(key)) for key in ("step", "bytes_mean", "seconds"))
    return Curve(step, sent, seconds, value, value, value)


def _array(lines: list[Line], get: Callable[[Line], Any]) -> Array:
    return np.array([_or_nan(get(line)) for line in lines], dtype=float)


def _matrix(workers: list[dict[int, Line]], steps: list[int], get: Callable[[Line], Any]) -> Array:
    return np.array([[_or_nan(get(own[step])) for step in steps] for own in workers], dtype=float)


def _or_nan(x: object) -> float:
    value = finite(x)
    return float("nan") if value is None else value
