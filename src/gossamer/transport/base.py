"""What a transport does: carry messages between workers, on time or with a named culprit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from typing import Any

from gossamer.errors import WireError
from gossamer.rounds.phase import Inbox, Phase


class Transport(ABC):
    """A worker's end of the network.

    `start` begins a phase and returns at once; `wait` ends it. Several phases may be under way and
    be waited for in any order; two workers' messages meet in the order in which they were started.
    """

    rank: int
    size: int
    deadline: float  # seconds that `wait` waits
    sent: Counter[int]  # bytes of the messages started, by peer
    received: Counter[int]
    waited: float  # seconds spent in `wait`

    @abstractmethod
    def start(self, phase: Phase, name: str) -> Any:  # noqa: ANN401 - a ticket only the transport can read
        """Begin to send and receive; return a ticket for `wait`."""

    @abstractmethod
    def wait(self, ticket: Any) -> Inbox:  # noqa: ANN401
        """Return the inbox, in rank order; raise PeerTimeout or PeerLost with the peer's name."""

    @abstractmethod
    def close(self) -> None:
        """Leave. Idempotent."""

    def fail(self, reason: str) -> None:  # noqa: B027 - not every transport has a way
        """Leave word for the others of why this worker goes no further; an empty one takes it back."""


class Alone(Transport):
    """The transport of a single worker: there is nobody to talk to."""

    def __init__(self) -> None:
        self.rank, self.size, self.deadline = 0, 1, 0.0
        self.sent, self.received, self.waited = Counter(), Counter(), 0.0

    def start(self, phase: Phase, name: str) -> None:
        """Send nothing."""
        if phase.send or phase.expect:
            raise WireError(f"{name}: a single worker has no peers, not {sorted(phase.send)}")

    def wait(self, ticket: None) -> Inbox:
        """Receive nothing."""
        return {}

    def close(self) -> None:
        """Stay alone."""
