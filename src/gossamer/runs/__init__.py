"""Runs: training as folders that can be watched, stopped, resumed, compared and shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gossamer._lazy import loading

if TYPE_CHECKING:
    from gossamer.runs.comparison import compare
    from gossamer.runs.config import Config, read_config
    from gossamer.runs.exporting import export
    from gossamer.runs.folder import RunFolder
    from gossamer.runs.processes.meshes import Place
    from gossamer.runs.record import Run, read_run
    from gossamer.runs.run import resume, simulate, train
    from gossamer.runs.summary import Summary

__all__ = [
    "Config",
    "Place",
    "Run",
    "RunFolder",
    "Summary",
    "compare",
    "export",
    "read_config",
    "read_run",
    "resume",
    "simulate",
    "train",
]

__getattr__ = loading(
    __name__,
    {
        "Config": "config",
        "Place": "processes.meshes",
        "Run": "record",
        "RunFolder": "folder",
        "Summary": "summary",
        "compare": "comparison",
        "export": "exporting",
        "read_config": "config",
        "read_run": "record",
        "resume": "run",
        "simulate": "run",
        "train": "run",
    },
)
