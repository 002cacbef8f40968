"""The model that people see: this worker's own, or temporarily another one in its place."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from gossamer._node.buffers import Buffers
from gossamer._node.exchanges import Exchanges
from gossamer._node.node import Node

log = logging.getLogger("gossamer")

MANY = 100  # rounds: a run this long is for the model, not just a trial
Values = tuple[list[Tensor], list[Tensor]]  # parameters and buffers, one flat vector per dtype and device


class ShownModel:
    """A model's parameters and buffers, which may temporarily hold other values than those in training."""

    def __init__(self, node: Node, buffers: Buffers) -> None:
        self._node, self._buffers = node, buffers
        self._aside: Values | None = None  # what is in training, while something else is shown
        self.was_other = False  # whether it has ever shown something else

    @property
    def is_other(self) -> bool:
        """Whether it shows something else at present."""
        return self._aside is not None

    def read(self) -> Values:
        """Return copies of what is shown: the parameters, and the buffers that consensus averages."""
        return self._node.read(), self._buffers.read()

    @contextmanager
    def showing(self, values: Values) -> Iterator[None]:
        """Temporarily show other values."""
        own = self.read()
        self._put(values)
        self._aside, self.was_other = own, True
        try:
            yield
        finally:
            self._aside = None
            self._put(own)

    @contextmanager
    def as_in_training(self) -> Iterator[None]:
        """Temporarily show what is in training."""
        if self._aside is None:
            yield
            return
        shown = self.read()
        self._put(self._aside)
        try:
            yield
        finally:
            self._put(shown)

    @torch.no_grad()
    def _put(self, values: Values) -> None:
        self._node.put(values[0])
        self._buffers.write(values[1])


def remind_of_consensus(
    shown: ShownModel, node: Node, exchanges: Exchanges, stopping: Collection[int]
) -> None:
    """Warn at the end of a run in which nobody has used the average model.

    Not if the run has failed, or if a worker was `stopping` it to resume later.
    """
    broken_off = exchanges.broken is not None or hasattr(sys, "last_value") or bool(stopping)
    if node.rank == 0 and node.rounds >= MANY and not shown.was_other and not broken_off:
        log.warning(
            "%d rounds were trained and consensus() was never entered: what was evaluated or saved is "
            "worker 0's own model, not the average of all. with optimizer.consensus(): evaluate and save",
            node.rounds,
        )
