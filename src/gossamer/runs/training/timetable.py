"""What happens at which step: the learning rate, and when to log, evaluate and save.

All of it follows from the settings and the step number, so that nothing has to be saved to resume.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gossamer.runs.config import Config
from gossamer.tasks import Sampler

EVALUATIONS = 10  # in a run, by default
LINES = 100  # of metrics, per worker


@dataclass(frozen=True)
class Timetable:
    """A run's time-table."""

    config: Config
    steps_per_epoch: int

    @classmethod
    def of(cls, config: Config, sampler: Sampler) -> Timetable:
        """Return the time-table for these settings and this many batches."""
        return cls(config, sampler.steps)

    @property
    def steps(self) -> int:
        """The steps of the whole run."""
        if self.config.steps is not None:
            return self.config.steps
        assert self.config.epochs is not None
        return max(1, round(self.config.epochs * self.steps_per_epoch))

    def epoch(self, step: int) -> float:
        """Return the number of epochs after so many steps."""
        return step / self.steps_per_epoch

    def lr(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        n = self.config.workers
        peak = self.config.lr * {"none": 1.0, "sqrt": math.sqrt(n), "linear": float(n)}[self.config.lr_scale]
        warmup = round(self.config.warmup * self.steps_per_epoch)
        if step < warmup:
            return peak * (step + 1) / warmup
        done = (step - warmup) / max(1, self.steps - warmup)
        factors = {
            "constant": 1.0,
            "step": 0.1 ** ((done >= 0.5) + (done >= 0.75)),  # as in CHOCO-SGD's experiments
            "cosine": (1 + math.cos(math.pi * done)) / 2,
        }
        return peak * factors[self.config.schedule]

    def logs(self, step: int) -> bool:
        """Return whether a line is written after so many steps."""
        return self._due(step, self.config.log_every, LINES)

    def evaluates(self, step: int) -> bool:
        """Return whether the models are evaluated after so many steps."""
        return self._due(step, self.config.evaluate_every, EVALUATIONS)

    def saves(self, step: int) -> bool:
        """Return whether a checkpoint is written after so many steps; 0 means never."""
        interval = self.config.checkpoint_every
        if interval is None:
            interval = self.config.evaluate_every
        return interval != 0 and self._due(step, interval, EVALUATIONS)

    def _due(self, step: int, interval: int | None, times: int) -> bool:
        return step == self.steps or step % (interval or math.ceil(self.steps / times)) == 0
