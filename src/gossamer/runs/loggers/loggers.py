"""Loggers by name: a progress line, TensorBoard, Weights & Biases, MLflow."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gossamer._suggest import unknown_name
from gossamer.runs.config import Config
from gossamer.runs.training.loop import Logger
from gossamer.runs.training.timetable import Timetable
from gossamer.tasks import Task


class Scalars:
    """Passes every number of a line, under its name, to a service that keeps curves."""

    def __init__(self, write: Callable[[str, float, int], object], close: Callable[[], object]) -> None:
        self._write, self._close = write, close

    def start(self, step: int, timetable: Timetable) -> None:
        """Begin."""

    def line(self, line: dict[str, Any]) -> None:
        """Write what is in a line."""
        for name, value in numbers(line).items():
            self._write(name, value, line["step"])

    def end(self, status: str) -> None:
        """Finish."""
        self._close()


def numbers(line: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a metrics line by names such as "train/loss" and "average/accuracy"."""
    found: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, dict):
            found |= {f"{name}/{inner}": float(v) for inner, v in value.items() if v is not None}
        elif isinstance(value, (int, float)) and name != "step":
            found[f"{line['kind']}/{name}"] = float(value)
    return found


def _progress(folder: Path, config: Config, task: Task) -> Logger:
    from gossamer.runs.loggers.progress import ProgressLine  # noqa: PLC0415 - an optional dependency

    return ProgressLine(config, task)


def _tensorboard(folder: Path, config: Config, task: Task) -> Logger:
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 - an optional dependency

    writer = SummaryWriter(str(folder / "tensorboard"))
    return Scalars(writer.add_scalar, writer.close)


def _wandb(folder: Path, config: Config, task: Task) -> Logger:
    import wandb  # noqa: PLC0415 - an optional dependency

    run = wandb.init(project="gossamer", name=folder.name, dir=str(folder), config=asdict(config))
    return Scalars(lambda name, value, step: run.log({name: value}, step=step), run.finish)


def _mlflow(folder: Path, config: Config, task: Task) -> Logger:
    import mlflow  # noqa: PLC0415 - an optional dependency

    mlflow.start_run(run_name=folder.name)
    mlflow.log_params({name: str(value) for name, value in asdict(config).items()})
    return Scalars(lambda name, value, step: mlflow.log_metric(_plain(name), value, step), mlflow.end_run)


LOGGERS: dict[str, Callable[[Path, Config, Task], Logger]] = {
    "progress": _progress,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}


NEEDED = {"progress": ("rich", "cli"), "tensorboard": ("tensorboard",) * 2}


def require_loggers(names: tuple[str, ...]) -> None:
    """Raise a ValueError for an unknown logger, or one that is not installed, before a run begins."""
    for name in names:
        if name not in LOGGERS:
            raise unknown_name("logger", name, LOGGERS)
        package, extra = NEEDED.get(name, (name, name))
        if package not in sys.modules and importlib.util.find_spec(package) is None:
            raise ValueError(f"--{name} needs {package}: pip install 'gossamer[{extra}]'")


def make_loggers(names: tuple[str, ...], folder: Path, config: Config, task: Task) -> list[Logger]:
    """Return the loggers of these names."""
    return [LOGGERS[name](folder, config, task) for name in names]


def _plain(name: str) -> str:
    """Return a name without what MLflow refuses in one."""
    return "".join(c if c.isalnum() or c in "_-./ " else "_" for c in name)
