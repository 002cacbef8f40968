"""One worker's exchanges with the others: whether they are sound, and what they have sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from gossamer._node.together import OverTransport
from gossamer.errors import GossamerError
from gossamer.rounds.collectives import combine
from gossamer.rounds.phase import Round
from gossamer.transport import Transport


class Exchanges(OverTransport):
    """Runs rounds over a transport, and refuses to continue after one that has failed."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self.sent: Counter[int] = Counter()  # by peer, in training
        self.broken: str | None = None  # why an earlier exchange has failed

    @property
    def consensus_sent(self) -> Counter[int]:
        """The bytes that averages over all workers have sent, by peer."""
        return self.asked[0]

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

    def run(self, rounds: Sequence[Round], name: str) -> list[Counter[int]]:
        """Run this worker's round, and remember if it breaks off."""
        with self.watched():
            return super().run(rounds, name)

    @torch.no_grad()
    def any(self, flag: bool) -> bool:
        """Return whether it is true on any worker; part of training."""
        found = torch.tensor([flag], dtype=torch.uint8)
        asked = combine(self.transport.rank, self.members, found, torch.maximum)
        self.sent.update(self.run([asked], "agreement on a skipped step")[0])
        return bool(found)

    def averages(self, xs: Sequence[Tensor]) -> list[Tensor]:
        """Return the exact averages over all workers of vectors that this worker has."""
        return [self.average([x])[0] for x in xs]
