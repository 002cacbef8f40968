"""The comparison of runs: one row per run."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields

from gossamer.report.format import finite
from gossamer.runs.record import Run
from gossamer.runs.summary import Summary


@dataclass(frozen=True)
class Row:
    """What is worth comparing: metric, consensus distance, bytes, time."""

    name: str
    task: str | None
    workers: int | None
    algorithm: str | None
    compressor: str | None
    topology: str | None
    metric: str | None
    better: str | None
    average: float | None
    local_mean: float | None
    consensus_distance: float | None
    bytes_per_worker: float | None
    bytes_full: float | None
    times_fewer: float | None
    seconds: float | None
    clock: str | None
    status: str

    @property
    def goodness(self) -> float:
        """The average model's metric, with a sign so that more is better; -inf if there is none."""
        if self.average is None:
            return -math.inf
        return -self.average if self.better == "lower" else self.average


def rows(runs: Sequence[Run]) -> list[Row]:
    """Return one row per run."""
    return [_row(run.name, run.summary) for run in runs]


def as_json(runs: Sequence[Run]) -> str:
    """Return the rows as JSON."""
    table = [asdict(row) for row in rows(runs)]
    return json.dumps(table, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_csv(runs: Sequence[Run]) -> str:
    """Return the rows as CSV with a heading; what is missing is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Row)] if runs else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(row) for row in rows(runs))
    return text.getvalue()


def _row(name: str, s: Summary) -> Row:
    return Row(
        name=name,
        task=s.task,
        workers=s.workers,
        algorithm=s.algorithm,
        compressor=s.compressor,
        topology=s.topology,
        metric=s.metric,
        better=s.better,
        average=finite(s.reached),
        local_mean=finite(s.reached_locally),
        consensus_distance=finite(s.consensus_distance),
        bytes_per_worker=finite(s.bytes_per_worker),
        bytes_full=finite(s.bytes_full),
        times_fewer=finite(s.times_fewer),
        seconds=finite(s.seconds),
        clock=s.clock,
        status=s.status,
    )


def labels(runs: Sequence[Run]) -> list[str]:
    """Return a short, unique name for every run: equal ones get a setting or the run's name added."""
    texts = []
    for run in runs:
        alike = [other for other in runs if other.label == run.label]
        differing = [
            key
            for key in run.config
            if any(key not in o.config or o.config[key] != run.config[key] for o in alike)
        ]
        settings = ", ".join(_setting(key, run.config[key]) for key in differing[:2])
        texts.append(f"{run.label}, {settings}" if settings else run.label)
    if len(set(texts)) == len(runs):
        return texts
    texts = [
        f"{text} ({run.name})" if texts.count(text) > 1 else text
        for text, run in zip(texts, runs, strict=True)
    ]
    return [f"{text} #{i}" if texts.count(text) > 1 else text for i, text in enumerate(texts)]


def _setting(key: str, value: object) -> str:
    words = key.replace("_", " ")
    return f"{words} {value}" if not isinstance(value, bool) else words if value else f"not {words}"


def groups(runs: Sequence[Run]) -> dict[tuple[str, str], list[int]]:
    """Return the positions of runs that may share axes, by task and metric.

    A run that was never evaluated may not know its metric, and is grouped with the others of its task.
    """
    known = {run.summary.task: run.summary.metric for run in reversed(runs) if run.summary.metric}
    found: dict[tuple[str, str], list[int]] = {}
    for i, run in enumerate(runs):
        task = run.summary.task
        metric = run.summary.metric or known.get(task)
        found.setdefault((task or "", metric or ""), []).append(i)
    return found
