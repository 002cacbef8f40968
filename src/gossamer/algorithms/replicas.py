"""What a worker knows of its neighbours' public copies x^_j: their sum, or each of them.

The sum takes two vectors whatever the degree, but cannot be split again: when edges change, all copies are
sent once more. One replica per neighbour takes one vector each, but an edge may come or go between two
rounds: only a new one costs its two ends a copy in full.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from gossamer.algorithms.base import require_choice
from gossamer.compress import Compressor, Identity
from gossamer.compress.wire import Message
from gossamer.rounds.phase import Inbox, Phase, Step, StepsAndPhases, blame
from gossamer.rounds.view import View
from gossamer.rounds.worker import Worker

Memory = Literal["sum", "replicas"]
FULL = Identity(raw="never")


@dataclass
class Sum:
    """x_hat: the neighbours' copy of x_i. r = s - x_hat with the papers' s = sum_j w_ij x_hat_j.

    r is kept instead of s because it vanishes as workers agree, and its rounding errors with it.
    """

    x_hat: Tensor
    r: Tensor

    def disagreement(self, worker: Worker) -> Tensor:
        """Return sum_j w_ij x^_j - x^_i."""
        return self.r

    def absorb(self, worker: Worker, C: Compressor, own: Message, inbox: Inbox) -> None:
        """Do x^_j += C(v_j) for all neighbours and this worker."""
        worker.add(C, self.x_hat, own)
        worker.add_disagreement(C, self.r, own, inbox)

    def rewire(self, worker: Worker, before: View) -> StepsAndPhases:
        """Build the sum anew from what all new neighbours send in full."""
        receivers = worker.view.receivers(worker.id, worker.t)
        copies = yield from in_full(worker, self.x_hat, receivers, worker.neighbours)
        self.r.zero_()
        for j, w in worker.weights.items():
            if j != worker.id:
                self.r.add_(copies[j] - self.x_hat, alpha=w)


@dataclass
class Replicas:
    """x_hat: the neighbours' copy of x_i. others: the x^_j of every neighbour."""

    x_hat: Tensor
    others: dict[int, Tensor]

    def disagreement(self, worker: Worker) -> Tensor:
        """Return sum_j w_ij (x^_j - x^_i)."""
        total = worker.zeros()
        for j, w in worker.weights.items():
            if j != worker.id:
                total.add_(self.others[j] - self.x_hat, alpha=w)
        return total

    def absorb(self, worker: Worker, C: Compressor, own: Message, inbox: Inbox) -> None:
        """Do x^_j += C(v_j) for all neighbours and this worker."""
        worker.add(C, self.x_hat, own)
        for j, messages in inbox.items():
            worker.add_from(C, self.others[j], j, messages[own.name])

    def rewire(self, worker: Worker, before: View) -> StepsAndPhases:
        """Drop the replicas of lost edges, and get those of new ones in full."""
        self.others = yield from changed(worker, self.others, self.x_hat, before)


def start(worker: Worker, memory: Memory, x_hat: Tensor) -> Sum | Replicas:
    """Return the state at the start, where all public copies are the same."""
    if memory == "sum":
        return Sum(x_hat, worker.zeros())
    return Replicas(x_hat, {j: x_hat.clone() for j in worker.neighbours})


def changed(
    worker: Worker, known: dict[int, Tensor], own: Tensor, before: View
) -> Generator[Phase | Step, Inbox, dict[int, Tensor]]:
    """Return the replicas for the edges of the worker's view: known ones, and new ones received in full."""
    old = before.receivers(worker.id, worker.t) if worker.id in before.members else ()
    receivers = [j for j in worker.view.receivers(worker.id, worker.t) if j not in old]
    new = yield from in_full(worker, own, receivers, [j for j in worker.neighbours if j not in known])
    return {j: known[j] if j in known else new[j] for j in worker.neighbours}


def in_full(
    worker: Worker, own: Tensor, receivers: Iterable[int], senders: Iterable[int]
) -> Generator[Phase | Step, Inbox, dict[int, Tensor]]:
    """Send a vector uncompressed, and return those of others."""
    layout = replace(worker.layout, dtype=own.dtype)
    message = FULL.message(own, layout)
    inbox = yield Phase.of(dict.fromkeys(receivers, message), dict.fromkeys(senders, message.nbytes))
    copies = {}
    for j, messages in inbox.items():
        with blame(j):
            copies[j] = FULL.decode(messages[""], layout).to(own.device)
    return copies


def require_memory(memory: str) -> None:
    """Raise a ValueError for an unknown kind of memory."""
    require_choice("memory", memory, "sum", "replicas")
