"""How a run is going, on a terminal or in a log."""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from gossamer.runs.config import Config
from gossamer.runs.plan import Plan
from gossamer.tasks import Task


class ProgressLine:
    """One line that moves on a terminal; elsewhere one line an evaluation."""

    def __init__(self, config: Config, task: Task, console: Console | None = None) -> None:
        self._console = console or Console()
        self._task, self._examples = task, config.workers * config.batch_size
        self._bar: Progress | None = None
        self._id = TaskID(0)
        self._began, self._first = time.monotonic(), 0
        self._seen: dict[str, Any] = {}

    def start(self, step: int, plan: Plan) -> None:
        """Show the line."""
        self._began, self._first, self._steps = time.monotonic(), step, plan.steps
        if self._console.is_terminal:
            columns = (TextColumn("step {task.completed}/{task.total}"), BarColumn(None))
            self._bar = Progress(
                *columns, TextColumn("{task.description}"), TimeRemainingColumn(), console=self._console
            )
            self._id = self._bar.add_task("", total=plan.steps, completed=step)
            self._bar.start()

    def line(self, line: dict[str, Any]) -> None:
        """Show what is new."""
        self._seen |= line
        if self._bar is not None:
            self._bar.update(self._id, completed=line["step"], description=self._text())
        if line["kind"] == "evaluation":
            eta = "" if self._bar is not None else f"  {self._time_left(line['step'])}"
            self._console.print(
                f"step {line['step']}/{self._steps}  {self._text()}{eta}", highlight=False, soft_wrap=True
            )
        if line["kind"] == "diverged":
            self._console.print(
                f"diverged after step {line['step']}: {line['error']}", highlight=False, soft_wrap=True
            )

    def end(self, status: str) -> None:
        """Take the line away."""
        if self._bar is not None:
            self._bar.stop()

    def _text(self) -> str:
        seen, metric = self._seen, self._task.metric
        parts = [f"loss {seen['loss']:.3f}"] if seen.get("loss") is not None else []
        if "average" in seen:
            average, local = seen["average"][metric], seen["local_mean"][metric]
            parts.append(f"{metric} {average:.4g} (local {local:.4g})")
            parts.append(f"apart {seen['consensus_distance']:.3g}")
        parts.append(f"{seen['bytes_sent'] / 1e6:.2f} MB a worker")
        passed = max(time.monotonic() - self._began, 1e-9)
        parts.append(f"{(seen['step'] - self._first) * self._examples / passed:.0f} examples/s")
        return "  ".join(parts)

    def _time_left(self, step: int) -> str:
        rate = (time.monotonic() - self._began) / max(1, step - self._first)
        return f"{rate * (self._steps - step):.0f} s left"
