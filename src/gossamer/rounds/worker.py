"""All that an algorithm may see of the world: no process group, no socket, no clock.

A round is a generator. It yields what a phase sends and expects, and is sent what arrived:

    inbox = yield worker.exchange(message)

Drivers run rounds: the simulation in one process, the distributed one over a transport.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer._random import generator
from gossamer.compress import Compressor
from gossamer.compress.layout import Layout
from gossamer.rounds.phase import Inbox, Phase, blame
from gossamer.topology import Schedule, Topology


@dataclass
class Worker:
    """One worker, as an algorithm sees it."""

    rank: int
    topology: Topology | Schedule
    layout: Layout
    x: Tensor  # the flat parameters; algorithms change them in place
    step: Callable[[], None]  # x += u, the user's own torch optimizer at the present gradients
    gradient: Callable[[], Tensor]  # the flat gradient ...
    set_gradient: Callable[[Tensor], None]  # ... and how to replace it before `step`
    common_start: bool  # all workers start from the same x
    seed: int = 0
    every: int = 1  # optimizer steps a round
    t: int = 0  # rounds done

    @property
    def n(self) -> int:
        """Return the number of workers."""
        return self.topology.n

    @property
    def weights(self) -> dict[int, float]:
        """Return row i of this round's W, in rank order, w_ii included."""
        return self.topology.weights(self.rank, self.t)

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Return the workers heard in this round."""
        return self.topology.senders(self.rank, self.t)

    def update(self) -> Tensor:
        """Return u, the step that the optimizer would make, and leave x as it is."""
        before = self.x.clone()
        self.step()
        u = self.x - before
        self.x.copy_(before)
        return u

    def zeros(self) -> Tensor:
        """Return a zero vector for a state: float32 at least, since a state adds up many small changes."""
        return torch.zeros_like(self.x, dtype=self.layout.scalar_dtype)

    def encode(self, compressor: Compressor, v: Tensor) -> Tensor:
        """Return C(v) as a message, with this worker's randomness of this round."""
        rng = generator(self.seed, "noise", self.t, self.rank)
        return compressor.encode(v.to(self.layout.dtype), self.layout, rng)

    def exchange(self, message: Tensor) -> Phase:
        """Send one message to all neighbours and expect one of the same length from each."""
        receivers = self.topology.receivers(self.rank, self.t)
        return Phase(dict.fromkeys(receivers, message), dict.fromkeys(self.neighbours, message.numel()))

    def add(self, compressor: Compressor, into: Tensor, own: Tensor, weight: float = 1.0) -> None:
        """Do into += weight * C(v_i) for this worker's own message."""
        compressor.add(into, own, self.layout, weight)

    def add_weighted(
        self, compressor: Compressor, into: Tensor, own: Tensor, inbox: Inbox, scale: float = 1.0
    ) -> None:
        """Do into += scale * sum_j w_ij C(v_j), own message included."""
        self._sum(compressor, into, own, inbox, {j: scale * w for j, w in self.weights.items()})

    def add_disagreement(self, compressor: Compressor, into: Tensor, own: Tensor, inbox: Inbox) -> None:
        """Do into += sum_j w_ij C(v_j) - C(v_i)."""
        row = self.weights
        self._sum(compressor, into, own, inbox, {**row, self.rank: row[self.rank] - 1.0})

    def _sum(
        self, compressor: Compressor, into: Tensor, own: Tensor, inbox: Inbox, weights: dict[int, float]
    ) -> None:
        """Add messages up, always in rank order."""
        for j, w in weights.items():
            with blame(j):
                compressor.add(into, own if j == self.rank else inbox[j], self.layout, w)
