"""Runs: training that can be watched, stopped, resumed, compared and shown."""

from gossamer.runs.compare import compare
from gossamer.runs.config import Config, read_config
from gossamer.runs.export import export
from gossamer.runs.folder import RunFolder
from gossamer.runs.train import resume, simulate, train

__all__ = ["Config", "RunFolder", "compare", "export", "read_config", "resume", "simulate", "train"]
