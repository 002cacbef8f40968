"""What a worker knows of its neighbours' public copies x^_j: their sum, or each of them.

The sum takes two vectors whatever the degree, but cannot be split again: when edges change, all copies are
sent once more. One replica per neighbour takes one vector each, but an edge may come or go between two
rounds: only a new one costs its two ends a copy in full.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor

from gossamer.algorithms.base import NeighbourMemory, require_choice
from gossamer.compress import Compressor, Identity
from gossamer.compress.layout import Layout
from gossamer.compress.wire import Message
from gossamer.rounds.phase import Inbox, Phase, Step, StepsAndPhases, blame
from gossamer.rounds.view import View
from gossamer.rounds.worker import Worker

Memory = Literal["auto", "sum", "replicas"]  # auto: replicas where edges come and go, otherwise the sum
FULL = Identity(raw="never")
MOST = 4.0  # times its mean: how far an entry of two copies that have drifted apart counts


@dataclass
class Sum:
    """x_hat: the neighbours' copy of x_i. r = s - x_hat with the papers' s = sum_j w_ij x_hat_j.

    r is kept instead of s because it vanishes as workers agree, and its rounding errors with it.
    """

    x_hat: Tensor
    r: Tensor

    def disagreement(self, worker: Worker, follows: Compressor | None = None) -> Tensor:
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
class Replicas(NeighbourMemory):
    """x_hat: the neighbours' copy of x_i. others: the x^_j of every neighbour.

    met: the neighbours whose x^_j began as a copy, and may have been far from x^_i.
    """

    x_hat: Tensor
    others: dict[int, Tensor]
    met: dict[int, bool] = field(default_factory=dict)

    def disagreement(self, worker: Worker, follows: Compressor | None = None) -> Tensor:
        """Return sum_j w_ij (x^_j - x^_i), as far as the compressor by which x^_i follows x_i can bear it."""
        slow = follows is not None and any(C.even for C in follows.alone())
        total = worker.zeros()
        for j, w in worker.weights.items():
            if j != worker.id:
                d = self.others[j] - self.x_hat
                total.add_(bounded(d, worker.layout) if slow and j in self.met else d, alpha=w)
        return total

    def absorb(self, worker: Worker, C: Compressor, own: Message, inbox: Inbox) -> None:
        """Do x^_j += C(v_j) for all neighbours and this worker."""
        worker.add(C, self.x_hat, own)
        for j, messages in inbox.items():
            worker.add_from(C, self.others[j], j, messages[own.name])

    def copy(self, worker: Worker) -> Tensor:
        """Return x^_i."""
        return self.x_hat

    def become(self, worker: Worker, copy: Tensor) -> None:
        """Take x^_i from another worker."""
        self.x_hat.copy_(copy)

    def known(self, worker: Worker) -> list[int]:
        """Return whose x^_j is kept."""
        return list(self.others)

    def meet(self, worker: Worker, j: int, copy: Tensor | None) -> None:
        """Keep x^_j."""
        self.others[j] = self.x_hat.clone() if copy is None else copy
        if copy is not None:
            self.met[j] = True

    def part(self, worker: Worker, j: int) -> None:
        """Drop x^_j."""
        del self.others[j]
        self.met.pop(j, None)

    def believed(self, worker: Worker, j: int) -> tuple[list[Tensor], list[Tensor]]:
        """Return x^_i and x^_j."""
        return [self.x_hat], [self.others[j]]

    def catch_up(self, worker: Worker, C: Compressor, j: int, messages: Mapping[str, Tensor]) -> None:
        """Do x^_j += C(v_j)."""
        worker.add_from(C, self.others[j], j, messages[""])

    def rewire(self, worker: Worker, before: View) -> StepsAndPhases:
        """Drop the replicas of lost edges, and get those of new ones in full."""
        self.others = yield from changed(worker, self.others, self.x_hat, before)


def bounded(d: Tensor, layout: Layout) -> Tensor:
    """Return a difference of copies without outliers, in place; both ends of an edge get opposite numbers.

    Where halves of a network meet again, a few entries differ by far more than the others. The pull on x
    follows them at once, but x^ only by the mean of |x - x^|: x would overshoot further every time.
    """
    for part in layout.split(d):
        if part.numel():
            most = MOST * part.abs().mean()
            part.clamp_(-most, most)
    return d


def start(worker: Worker, memory: Memory, x_hat: Tensor) -> Sum | Replicas:
    """Return the state at the start, where all public copies are the same."""
    if memory != "replicas":
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
    require_choice("memory", memory, "auto", "sum", "replicas")
