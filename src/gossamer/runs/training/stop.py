"""Ctrl-C with a checkpoint: all workers stop after the same step.

A worker that gets a signal names a step that no worker can have passed yet, in a file of the run's
folder, and every worker looks for the file after each step. A worker waits for its neighbours in every
round, so no two workers are further apart, in rounds, than the graph's diameter. Where workers share no
folder, or a graph changes so that this does not hold, the worst that happens is that some checkpoint is
not held by all: the run then resumes from the one before.

A worker of a mesh may wait minutes for the others. Until it trains there is nothing to save, and a signal
ends it at once.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from pathlib import Path

from gossamer._node.interrupts import listening
from gossamer.runs.config import Config
from gossamer.topology import Topology


def margin(config: Config) -> int:
    """Return how many steps a worker may be behind another one."""
    topology = config.make_topology()
    rounds = topology.diameter if isinstance(topology, Topology) else config.workers
    return (rounds + 1) * config.every


class Stop:
    """Listens to signals, and to the other workers' requests to stop.

    As long as training has not `begun`, a signal raises KeyboardInterrupt.
    """

    def __init__(self, folder: Path, margin: int, *, begun: bool = True) -> None:
        self._path, self._margin, self.begun = folder / "stop", margin, begun
        self._asked = False

    @staticmethod
    def clear(folder: Path) -> None:
        """Forget an earlier request to stop."""
        (folder / "stop").unlink(missing_ok=True)

    def listening(self) -> AbstractContextManager[None]:
        """Take Ctrl-C and SIGTERM as a request to stop; a second Ctrl-C stops at once."""
        return listening(self._on_signal)

    def at(self, step: int) -> int | None:
        """Return the step after which all stop, if somebody wants to."""
        if self._asked:
            self._propose(step + self._margin)
        try:
            return int(self._path.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def _propose(self, step: int) -> None:
        """Name the step, unless another worker has named one: the first counts."""
        with suppress(FileExistsError), self._path.open("x") as file:
            file.write(str(step))  # a worker that reads the file before finds no number, and tries again

    def _on_signal(self) -> None:
        if not self.begun:
            raise KeyboardInterrupt
        self._asked = True
