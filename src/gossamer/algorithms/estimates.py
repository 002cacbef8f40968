"""What a worker of ECD-PSGD knows of the models x~_j: their sum, or each of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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
class ECDReplicas:
    """x_t: x after the last round. x_tilde: the estimates themselves, this worker's own among them."""

    x_t: Tensor
    x_tilde: dict[int, Tensor]

    def total(self, worker: Worker) -> Tensor:
        """Return sum_j w_ij x~_j."""
        parts = [w * self.x_tilde[j] for j, w in worker.weights.items()]
        return torch.stack(parts).sum(0)

    def absorb(self, worker: Worker, C: Compressor, own: Message, inbox: Inbox, t: int) -> None:
        """Do x~_j = (1 - 2/t) x~_j + 2/t C(z_j)."""
        for j, x_tilde in self.x_tilde.items():
            x_tilde.mul_(1 - 2 / t)
            if j == worker.id:
                worker.add(C, x_tilde, own, 2 / t)
            else:
                worker.add_from(C, x_tilde, j, inbox[j][own.name], 2 / t)

    def rewire(self, worker: Worker, before: View) -> StepsAndPhases:
        """Drop the estimates along lost edges, and get those along new ones in full."""
        own = self.x_tilde.pop(worker.id)
        others = yield from changed(worker, self.x_tilde, own, before)
        self.x_tilde = {**others, worker.id: own}
