"""The comparison of runs: one row a run."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from gossamer.report.format import finite
from gossamer.runs.record import Run


def rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return what is worth comparing: how good, how far apart, how many bytes, how long."""
    return [_row(run) for run in runs]


def as_json(runs: Sequence[Run]) -> str:
    """Return the rows as JSON."""
    return json.dumps(rows(runs), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def as_csv(runs: Sequence[Run]) -> str:
    """Return the rows as CSV with a heading; what is missing is empty."""
    text = io.StringIO()
    table = rows(runs)
    writer = csv.DictWriter(text, list(table[0]) if table else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


def _row(run: Run) -> dict[str, Any]:
    s = run.summary
    metric = s["metric"]
    sent = [finite(n) or 0.0 for n in s["bytes_sent"] or []]
    mean = sum(sent) / len(sent) if sent else None
    full = finite(s["bytes_full"])
    return {
        "name": run.name,
        "task": s["task"],
        "workers": s["workers"],
        "algorithm": s["algorithm"],
        "compressor": s["compressor"],
        "topology": s["topology"],
        "metric": metric,
        "better": s["better"],
        "average": finite((s["average"] or {}).get(metric)),
        "local_mean": finite((s["local_mean"] or {}).get(metric)),
        "consensus_distance": finite(s["consensus_distance"]),
        "bytes_per_worker": mean,
        "bytes_full": full,
        "times_fewer": full / mean if full is not None and mean else None,
        "seconds": finite(s["seconds"]),
        "clock": s["clock"],
        "status": s["status"],
    }


def labels(runs: Sequence[Run]) -> list[str]:
    """Return a short name for every run, no two alike: equal ones get a setting or the run's name."""
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

    A run that was never evaluated may not know its metric, and stands with the others of its task.
    """
    known = {run.summary["task"]: run.summary["metric"] for run in reversed(runs) if run.summary["metric"]}
    found: dict[tuple[str, str], list[int]] = {}
    for i, run in enumerate(runs):
        task = run.summary["task"]
        metric = run.summary["metric"] or known.get(task)
        found.setdefault((str(task or ""), str(metric or "")), []).append(i)
    return found
