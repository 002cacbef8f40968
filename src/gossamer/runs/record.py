"""A run from its folder, finished or not."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.runs.files import read_lines
from gossamer.runs.summary import Partition, Summary

Line = dict[str, Any]
HOLDS = (
    "a run is a folder with config.json, environment.json, metrics/worker-<rank>.jsonl and, "
    "once it has ended, summary.json"
)


@dataclass(frozen=True)
class Run:
    """What a run's folder says. Made by `read_run`.

    Args:
        folder: Where it is.
        name: The folder's name.
        config: What config.json says.
        environment: What environment.json says.
        summary: What summary.json says, completed from the other files.
        train: Every worker's training lines in order of their steps.
        evaluations: Those of worker 0, each with `bytes_mean`, the bytes that a worker had sent by then on
            average.
        label: Algorithm, compressor and topology in a few words.

    Example:
        >>> import tempfile
        >>> from gossamer.runs import Config, read_run, simulate
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = simulate(Config(workers=2, compressor="sign", steps=2), f"{folder}/mine")
        ...     run = read_run(f"{folder}/mine")
        >>> run.name, sorted(run.train), run.evaluations[-1]["step"]
        ('mine', [0, 1], 2)
    """

    folder: Path
    name: str
    config: dict[str, Any]
    environment: dict[str, Any]
    summary: Summary
    train: dict[int, list[Line]]
    evaluations: list[Line]
    label: str


def read_run(path: str | Path) -> Run:
    """Read a run from its folder, finished or not.

    Args:
        path: The folder.

    Returns:
        What its files say.

    Raises:
        ValueError: The folder holds no run.

    Example:
        >>> from gossamer.runs import read_run
        >>> read_run("no-such-folder")
        Traceback (most recent call last):
        ValueError: no-such-folder is no run: it is no folder; ...
    """
    folder = Path(path).expanduser()
    config = _load(folder / "config.json")
    if config is None:
        what = "has no config.json" if folder.is_dir() else "is no folder"
        raise ValueError(f"{folder} is no run: it {what}; {HOLDS}")
    lines = _lines(folder / "metrics")
    train = {worker: _of_kind(own, "train") for worker, own in lines.items()}
    evaluations = _evaluations(lines)
    summary = _summary(folder / "summary.json").filled(_derived(config, lines, train, evaluations))
    return Run(
        folder=folder,
        name=folder.resolve().name,
        config=config,
        environment=_load(folder / "environment.json") or {},
        summary=summary,
        train=train,
        evaluations=evaluations,
        label=summary.label,
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


def _summary(path: Path) -> Summary:
    try:
        return Summary.from_json(_load(path, broken_is_absent=True) or {})
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def _lines(folder: Path) -> dict[int, list[Line]]:
    found = {}
    for path in folder.glob("worker-*.jsonl"):
        if match := re.fullmatch(r"worker-(\d+)\.jsonl", path.name):
            found[int(match[1])] = read_lines(path)
    return dict(sorted(found.items()))


def _of_kind(lines: list[Line], kind: str) -> list[Line]:
    """Return one kind of lines; of steps that were done again after a restart, only the later ones."""
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
    first = lines.get(min(lines, default=0), [])  # in a folder of one worker of a mesh there is only its own
    return [line | {"bytes_mean": means.get(line["step"])} for line in _of_kind(first, "evaluation")]


def _derived(
    config: dict[str, Any],
    lines: dict[int, list[Line]],
    train: dict[int, list[Line]],
    evaluations: list[Line],
) -> Summary:
    """Return the summary of a run that has written none: still running, as far as anyone can tell."""
    last = evaluations[-1] if evaluations else {}
    ends = [own[-1] for own in lines.values() if own]
    losses = [own[-1].get("loss") for own in train.values() if own]
    known = [loss for loss in losses if isinstance(loss, (int, float))]
    average = last.get("average")
    return Summary(
        task=config.get("task"),
        metric=next(iter(average), None) if average else None,
        workers=config.get("workers") or len(lines),
        algorithm=config.get("algorithm"),
        compressor=config.get("compressor"),
        topology=config.get("topology"),
        gamma=config.get("gamma") if isinstance(config.get("gamma"), (int, float)) else None,
        steps=max((line["step"] for line in ends), default=0),
        epochs=max((line.get("epoch") or 0.0 for line in ends), default=0.0),
        average=average,
        local_mean=last.get("local_mean"),
        consensus_distance=last.get("consensus_distance"),
        train_loss=sum(known) / len(known) if known and len(known) == len(losses) else None,
        bytes_sent=tuple(line.get("bytes_sent") or 0 for line in ends),
        seconds=max((line.get("seconds") or 0.0 for line in ends), default=0.0),
        partition=Partition(config.get("partition")),
    )
