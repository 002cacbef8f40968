"""What a worker of ECD-PSGD knows of the models x~_j: their sum, or each of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer.algorithms.base import NeighbourMemory
from gossamer.algorithms.replicas import changed
from gossamer.compress import Compressor
from gossamer.compress.wire import Message
from gossamer.rounds.phase import Inbox, StepsAndPhases
from gossamer.rounds.view import View
from gossamer.rounds.worker import Worker


@dataclass
class ECDState:
    """x_t: x after the last round. s = sum_j w_ij x~_j, the estimates of the neighbours' models.

    s is in float64: (1 - 2/t) nearly keeps a rounding error for ever, and t of them add up.
    """

    x_t: Tensor
    s: Tensor

    def total(self, worker: Worker) -> Tensor:
        """Return sum_j w_ij x~_j."""
        return self.s

    def absorb(self, worker: Worker, C: Compressor, own: Message, inbox: Inbox, t: int) -> None:
        """Do x~_j = (1 - 2/t) x~_j + 2/t C(z_j)."""
        self.s.mul_(1 - 2 / t)
        worker.add_weighted(C, self.s, own, inbox, 2 / t)

    def rewire(self, worker: Worker, before: View) -> StepsAndPhases:
        """Refuse: the sum does not hold this worker's own estimate, which others would need."""
        raise ValueError("ECD needs memory='replicas' where edges come and go")


@dataclass
class ECDReplicas(NeighbourMemory):
    """x_t: x after the last round. x_tilde: the estimates themselves, this worker's own among them."""

    x_t: Tensor
    x_tilde: dict[int, Tensor]

    def total(self, worker: Worker) -> Tensor:
        """Return sum_j w_ij x~_j."""
        parts = [w * self.x_tilde[j] for j, w in worker.weights.items()]
        return torch.stack(parts).sum(0)

    def absorb(self, worker: Worker, C: Compressor, own: Message, inbox: Inbox, t: int) -> None:
        """Do x~_j = (1 - 2/t) x~_j + 2/t C(z_j)."""
        self.x_tilde[worker.id].mul_(1 - 2 / t)
        worker.add(C, self.x_tilde[worker.id], own, 2 / t)
        for j, messages in inbox.items():
            self._extrapolate(worker, C, j, messages[own.name])

    def _extrapolate(self, worker: Worker, C: Compressor, j: int, message: Tensor) -> None:
        """Do the same for one neighbour, by its own t."""
        t = worker.round_of(j) + 1
        self.x_tilde[j].mul_(1 - 2 / t)
        worker.add_from(C, self.x_tilde[j], j, message, 2 / t)

    def copy(self, worker: Worker) -> Tensor:
        """Return x~_i."""
        return self.x_tilde[worker.id]

    def become(self, worker: Worker, copy: Tensor) -> None:
        """Take x~_i from another worker."""
        self.x_tilde[worker.id].copy_(copy)

    def known(self, worker: Worker) -> list[int]:
        """Return whose x~_j is kept."""
        return [j for j in self.x_tilde if j != worker.id]

    def meet(self, worker: Worker, j: int, copy: Tensor | None) -> None:
        """Keep x~_j."""
        self.x_tilde[j] = self.x_tilde[worker.id].clone() if copy is None else copy

    def part(self, worker: Worker, j: int) -> None:
        """Drop x~_j."""
        del self.x_tilde[j]

    def believed(self, worker: Worker, j: int) -> tuple[list[Tensor], list[Tensor]]:
        """Return x~_i and x~_j."""
        return [self.x_tilde[worker.id]], [self.x_tilde[j]]

    def catch_up(self, worker: Worker, C: Compressor, j: int, messages: Mapping[str, Tensor]) -> None:
        """Take one step of x~_j."""
        self._extrapolate(worker, C, j, messages[""])

    def rewire(self, worker: Worker, before: View) -> StepsAndPhases:
        """Drop the estimates along lost edges, and get those along new ones in full."""
        own = self.x_tilde.pop(worker.id)
        others = yield from changed(worker, self.x_tilde, own, before)
        self.x_tilde = {**others, worker.id: own}
