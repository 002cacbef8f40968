"""A run from its folder, finished or not."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.runs.files import read_lines

Line = dict[str, Any]
HOLDS = (
    "a run is a folder with config.json, environment.json, metrics/worker-<rank>.jsonl and, "
    "once it has ended, summary.json"
)
LOWER_IS_BETTER = ("loss", "error", "perplexity")


@dataclass(frozen=True)
class Run:
    """What a run's folder says.

    `train` has every worker's training lines in order of their steps; `evaluations` those of worker 0,
    each with `bytes_mean`, the bytes that a worker had sent by then on average. `summary` is what
    summary.json says, and what follows from the other files where it says nothing.
    """

    folder: Path
    name: str
    config: dict[str, Any]
    environment: dict[str, Any]
    summary: dict[str, Any]
    train: dict[int, list[Line]]
    evaluations: list[Line]
    label: str


def read_run(path: str | Path) -> Run:
    """Read a run from its folder."""
    folder = Path(path).expanduser()
    config = _load(folder / "config.json")
    if config is None:
        what = "has no config.json" if folder.is_dir() else "is no folder"
        raise ValueError(f"{folder} is no run: it {what}; {HOLDS}")
    lines = _lines(folder / "metrics")
    train = {worker: _of_kind(own, "train") for worker, own in lines.items()}
    evaluations = _evaluations(lines)
    summary = _derived(config, lines, train, evaluations)
    summary |= _load(folder / "summary.json", broken_is_absent=True) or {}
    return Run(
        folder=folder,
        name=folder.resolve().name,
        config=config,
        environment=_load(folder / "environment.json") or {},
        summary=summary,
        train=train,
        evaluations=evaluations,
        label=_label(summary),
    )


def _load(path: Path, broken_is_absent: bool = False) -> dict[str, Any] | None:
    """Read a JSON object; None if there is no such file."""
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError(f"it holds a {type(value).__name__}, not an object")
    except ValueError as error:
        if broken_is_absent:  # a process that was killed while it wrote its summary has none
            return None
        raise ValueError(f"{path} cannot be read: {error}; {HOLDS}") from None
    return value


def _lines(folder: Path) -> dict[int, list[Line]]:
    found = {}
    for path in folder.glob("worker-*.jsonl"):
        if match := re.fullmatch(r"worker-(\d+)\.jsonl", path.name):
            found[int(match[1])] = read_lines(path)
    return dict(sorted(found.items()))


def _of_kind(lines: list[Line], kind: str) -> list[Line]:
    """Return one kind of lines; what was done again after a restart counts the second time."""
    kept: list[Line] = []
    for line in lines:
        if line.get("kind") == kind:
            while kept and kept[-1]["step"] >= line["step"]:
                kept.pop()
            kept.append(line)
    return kept


def _evaluations(lines: dict[int, list[Line]]) -> list[Line]:
    by_worker = [_of_kind(own, "evaluation") for own in lines.values()]
    sent: dict[int, list[float]] = {}
    for line in (line for own in by_worker for line in own):
        if isinstance(line.get("bytes_sent"), (int, float)):
            sent.setdefault(line["step"], []).append(line["bytes_sent"])
    means = {step: sum(values) / len(values) for step, values in sent.items()}
    return [
        line | {"bytes_mean": means.get(line["step"])} for line in _of_kind(lines.get(0, []), "evaluation")
    ]


def _derived(
    config: dict[str, Any],
    lines: dict[int, list[Line]],
    train: dict[int, list[Line]],
    evaluations: list[Line],
) -> dict[str, Any]:
    """Return the summary of a run that has written none: still running, as far as anyone can tell."""
    last = evaluations[-1] if evaluations else {}
    ends = [own[-1] for own in lines.values() if own]
    losses = [own[-1].get("loss") for own in train.values() if own]
    known = [loss for loss in losses if isinstance(loss, (int, float))]
    average = last.get("average") or {}
    metric = "accuracy" if "accuracy" in average else next(iter(average), None)
    return {
        "status": "running",
        "error": None,
        "task": config.get("task"),
        "metric": metric,
        "better": "lower" if any(word in str(metric) for word in LOWER_IS_BETTER) else "higher",
        "steps": max((line["step"] for line in ends), default=0),
        "epochs": max((line.get("epoch") or 0.0 for line in ends), default=0.0),
        "workers": config.get("workers") or len(lines),
        "parameters": None,
        "algorithm": config.get("algorithm"),
        "compressor": config.get("compressor"),
        "topology": config.get("topology"),
        "gamma": config.get("gamma") if isinstance(config.get("gamma"), (int, float)) else None,
        "average": average,
        "local_mean": last.get("local_mean") or {},
        "consensus_distance": last.get("consensus_distance"),
        "train_loss": sum(known) / len(known) if known else None,
        "bytes_sent": [line.get("bytes_sent") or 0 for line in ends],
        "links": [],
        "bytes_evaluating": None,
        "bytes_full": None,
        "seconds": max((line.get("seconds") or 0.0 for line in ends), default=0.0),
        "clock": None,
        "network": None,
        "partition": {"kind": config.get("partition"), "counts": None},
        "graph": None,
    }


def _label(summary: dict[str, Any]) -> str:
    parts = (summary["algorithm"], summary["compressor"], summary["topology"])
    return " ".join(str(part) for part in parts if part) or "a run"
