"""A run's progress, on a terminal or in a log."""

from __future__ import annotations

import math
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from gossamer.runs.config import Config
from gossamer.runs.training.timetable import Timetable
from gossamer.tasks import Task


class _Console(Console):
    """A console that falls silent when nobody reads it any more, as in `gossamer train | head`."""

    def on_broken_pipe(self) -> None:
        """Continue without output: the run matters more."""
        self.quiet = True


class ProgressLine:
    """One line that moves on a terminal; elsewhere one line per evaluation."""

    def __init__(self, config: Config, task: Task, console: Console | None = None) -> None:
        self._console = console or _Console()
        self._task, self._examples = task, config.workers * config.batch_size
        self._bar: Progress | None = None
        self._id = TaskID(0)
        self._began, self._first = time.monotonic(), 0
        self._seen: dict[str, Any] = {}

    def start(self, step: int, timetable: Timetable) -> None:
        """Show the line."""
        self._began, self._first, self._steps = time.monotonic(), step, timetable.steps
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn(
                    "step {task.completed}/{task.total}", table_column=Column(no_wrap=True, min_width=12)
                ),
                BarColumn(20),
                TextColumn("{task.description}", markup=False),
                TimeRemainingColumn(compact=True),
                TextColumn("left"),
                console=self._console,
                transient=True,
            )
            self._id = self._bar.add_task("", total=timetable.steps, completed=step)
            self._bar.start()

    def line(self, line: dict[str, Any]) -> None:
        """Show what is new: the moving line always, a lasting one for every evaluation."""
        self._seen |= line
        if self._bar is not None:
            short = "  ".join([*self._loss(), *self._distance(), *self._pace()])
            self._bar.update(self._id, completed=line["step"], description=short)
        if line["kind"] == "evaluation":
            words = [f"step {line['step']}/{self._steps}", *self._loss(), *self._quality(), *self._distance()]
            words += [*self._pace(), *([] if self._bar is not None else [self._time_left(line["step"])])]
            self._print("  ".join(words))
        if line["kind"] == "diverged":
            self._print(f"diverged after step {line['step']}: {line['error']}")

    def end(self, status: str) -> None:
        """Take the line away."""
        if self._bar is not None:
            self._bar.stop()

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)

    def _loss(self) -> list[str]:
        loss = self._seen.get("loss")
        return [] if loss is None else [f"loss {loss:.3f}"]

    def _quality(self) -> list[str]:
        metric = self._task.metric
        average, local = (self._seen.get(key, {}).get(metric) for key in ("average", "local_mean"))
        return [] if average is None or local is None else [f"{metric} {average:.4g} (local {local:.4g})"]

    def _distance(self) -> list[str]:
        """Return how far apart workers are; one that has asked nobody does not know."""
        distance = self._seen.get("consensus_distance", math.nan)
        known = distance is not None and not math.isnan(distance)
        return [f"consensus distance {distance:.3g}"] if known else []

    def _pace(self) -> list[str]:
        passed = max(time.monotonic() - self._began, 1e-9)
        pace = (self._seen["step"] - self._first) * self._examples / passed
        return [f"{self._seen.get('bytes_sent', 0) / 1e6:.2f} MB sent per worker", f"{pace:.0f} examples/s"]

    def _time_left(self, step: int) -> str:
        rate = (time.monotonic() - self._began) / max(1, step - self._first)
        return f"{rate * (self._steps - step):.0f} s left"
