"""When a round begins and ends, counted in optimizer steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cadence:
    """Of every `every` steps the last one ends a round; messages fly during the last `overlap` of them.

    Steps count from 0. A round's messages describe the model as it is before the step that `publishes`: the
    last one of the round, or with overlap > 1 an earlier one.
    """

    every: int = 1
    overlap: int = 0

    def rounds(self, steps: int) -> int:
        """Return how many rounds have ended after so many steps."""
        return steps // self.every

    def publishes(self, step: int) -> bool:
        """Return whether messages describe the model as it is before this step."""
        return step % self.every == self.every - max(self.overlap, 1)

    def may_fly(self, step: int) -> bool:
        """Return whether messages fly during this step, or may at least be sent before it."""
        return step % self.every >= self.every - self.overlap

    def exchanges(self, step: int) -> bool:
        """Return whether this step ends a round."""
        return (step + 1) % self.every == 0
