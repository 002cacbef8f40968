"""What the workers of a mesh find out together: those that are there, also when one is lost on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from torch import Tensor

from gossamer._mesh.transport import MeshTransport
from gossamer._node.exchanges import Exchanges
from gossamer.errors import PeerError, WireError

T = TypeVar("T")


class MeshExchanges(Exchanges):
    """Asks all members that are there; begins again, with those that are left, when one is lost."""

    transport: MeshTransport

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Let an exchange that breaks off be: neighbours that do not agree any more begin anew themselves."""
        yield

    def average(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        """Average one vector per worker over all workers that are there."""
        return self._until_it_works(lambda: super(MeshExchanges, self).average(vectors))

    def mean(self, values: Sequence[float]) -> float:
        """Return the average over all workers that are there of one number per worker."""
        return self._until_it_works(lambda: super(MeshExchanges, self).mean(values))

    def gather(self, rows: Sequence[Sequence[float]]) -> list[list[float]]:
        """Return the rows of numbers of all workers that are there."""
        return self._until_it_works(lambda: super(MeshExchanges, self).gather(rows))

    def first_error(self, complaints: Sequence[str]) -> str:
        """Return one worker's error text, the same on all workers that are there, or "" if none has one."""
        return self._until_it_works(lambda: super(MeshExchanges, self).first_error(complaints))

    def _until_it_works(self, ask: Callable[[], T]) -> T:
        end = time.monotonic() + self.transport.deadline
        while True:
            self.members = self.transport.present()
            try:
                with self.transport.together():
                    return ask()
            except (PeerError, WireError):
                if time.monotonic() > end:
                    raise
                self.transport.begin_anew(self.members)
