"""One worker's exchanges with the others: whether they are sound, and averages over all workers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.rounds.collectives import all_mean, as_accumulator, combine
from gossamer.rounds.phase import Round
from gossamer.transport import Flight, Transport

AVERAGE = "average of all workers"


class Exchanges:
    """Runs rounds over a transport, and refuses to go on after one that has failed."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.sent: Counter[int] = Counter()  # by peer, in training
        self.consensus_sent: Counter[int] = Counter()  # by peer, for averages over all workers
        self.broken: str | None = None  # why an earlier exchange has failed

    def require_sound(self) -> None:
        """Raise a GossamerError after a failed exchange."""
        if self.broken is not None:
            raise GossamerError(
                f"an earlier exchange broke off ({self.broken}), so workers may no longer agree on what "
                f"they know of each other; start again from a checkpoint"
            )

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Remember an exchange that breaks off: some workers have done more of it than others."""
        try:
            yield
        except BaseException as error:
            self.broken = f"{type(error).__name__}: {error}"
            self.transport.fail(self.broken)
            raise

    def begin_anew(self) -> None:
        """Forget an earlier failure: a checkpoint was loaded."""
        if self.broken is not None:
            self.broken = None
            self.transport.fail("")

    @torch.no_grad()
    def average(self, v: Tensor) -> Tensor:
        """Return the exact average over all workers, summed in float32 at least."""
        total = as_accumulator(v)
        self.consensus_sent.update(self._run(all_mean(*self._place, total), AVERAGE))
        return total.to(v.dtype)

    @torch.no_grad()
    def mean(self, value: float) -> float:
        """Return the average of a number over all workers, the same bits everywhere."""
        total = torch.tensor([float(value)], dtype=torch.float64)
        self.consensus_sent.update(self._run(combine(*self._place, total, torch.add), AVERAGE))
        return float(total) / self.transport.size

    @torch.no_grad()
    def any(self, flag: bool) -> bool:
        """Return whether it is true on any worker."""
        found = torch.tensor([flag], dtype=torch.uint8)
        self.sent.update(
            self._run(combine(*self._place, found, torch.maximum), "agreement on a skipped step")
        )
        return bool(found)

    @torch.no_grad()
    def distance(self, xs: Sequence[Tensor]) -> float:
        """Return sqrt(1/n sum_i |x_i - average|^2), where the xs make up this worker's x."""
        squared = sum(float((x - self.average(x)).double().square().sum()) for x in xs)
        return math.sqrt(self.mean(squared))

    @property
    def _place(self) -> tuple[int, range]:
        return self.transport.rank, range(self.transport.size)

    def _run(self, r: Round, name: str) -> Counter[int]:
        with self.watched():
            return Flight(r, self.transport, name).finish()
