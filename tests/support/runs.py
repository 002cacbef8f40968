"""Runs of every algorithm: broken off before a step, looked at at their end, and compared."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gossamer.runs import RunFolder, simulate
from gossamer.runs.training.local_workers import AllWorkers

METHODS: dict[str, dict[str, Any]] = {
    "allreduce": {"algorithm": "allreduce"},
    "allreduce every 3": {"algorithm": "allreduce", "every": 3},
    "dpsgd": {"algorithm": "dpsgd", "topology": "one-peer-exponential"},
    "dpsgd overlap": {"algorithm": "dpsgd", "overlap": True},
    "naive": {"algorithm": "naive", "compressor": "fp16"},
    "dcd": {"algorithm": "dcd", "compressor": "qsgd:8"},
    "ecd": {"algorithm": "ecd", "compressor": "qsgd:8"},
    "choco": {
        "algorithm": "choco",
        "compressor": "randomk:0.3",
        "gamma": 0.2,
        "optimizer": "adam",
        "lr": 0.01,
    },
    "choco overlap": {"algorithm": "choco", "compressor": "sign", "gamma": 0.2, "overlap": True},
    "dpsgd overlap 2 of 3": {"algorithm": "dpsgd", "overlap": 2, "every": 3},
    "deepsqueeze": {"algorithm": "deepsqueeze", "compressor": "topk:0.3", "gamma": 0.2, "every": 2},
    "powergossip": {"algorithm": "powergossip:1", "schedule": "cosine", "nesterov": True},
}


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return type(b) is dict and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def final(folder, workers=3):
    """Return all workers' last checkpoints without what time it took."""
    checkpoints = RunFolder(folder).checkpoints
    states = [checkpoints.load(max(checkpoints.steps(rank)), rank) for rank in range(workers)]
    return [{key: value for key, value in state.items() if key != "time"} for state in states]


def without_time(summary):
    return replace(summary, seconds=None)


class Stop(Exception):  # noqa: N818
    pass


def stopping(at, step=AllWorkers.step):
    def stepping(own, number, lr):
        if number == at:
            raise Stop
        return step(own, number, lr)

    return stepping


def break_off(monkeypatch, config, folder, at):
    """Leave a run that was broken off before a step."""
    with monkeypatch.context() as patch:
        patch.setattr(AllWorkers, "step", stopping(at))
        with pytest.raises(Stop):
            simulate(config, folder)


def processes_of(folder) -> list[int]:
    """Return the processes that have the folder in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
