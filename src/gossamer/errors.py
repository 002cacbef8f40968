"""What can go wrong, as a tree.

GossamerError
├── WireError        a message that is truncated, corrupted or not ours
├── PeerError        a neighbour did not do its part
│   ├── PeerTimeout  it stayed silent past the deadline
│   └── PeerLost     its connection broke
├── MismatchError    workers were started with different settings
└── Diverged         numbers are no longer finite; also a ValueError

Mistakes in the arguments of a call are plain ValueErrors that say what to do instead.
TheoryWarning marks combinations that run but that no theorem covers.
"""

from __future__ import annotations


class GossamerError(Exception):
    """Everything Gossamer raises on its own account.

    The arguments are kept as they were given, so that an error survives a process boundary.
    """


class WireError(GossamerError):
    """A message that cannot be what the peer meant to send."""

    def __init__(self, problem: str, peer: int | None = None) -> None:
        super().__init__(problem, peer)
        self.problem, self.peer = problem, peer

    def __str__(self) -> str:
        return self.problem if self.peer is None else f"message from worker {self.peer}: {self.problem}"


class PeerError(GossamerError):
    """A neighbour did not do its part of an exchange."""

    def __init__(self, peer: int, phase: str, age: float, cause: str) -> None:
        super().__init__(peer, phase, age, cause)
        self.peer, self.phase, self.age, self.cause = peer, phase, age, cause

    def __str__(self) -> str:
        return f"worker {self.peer} {self.cause} in {self.phase}, {self.age:.1f} s after the exchange began"


class PeerTimeout(PeerError):  # noqa: N818 - the word says it
    """A neighbour stayed silent past the deadline."""

    def __str__(self) -> str:
        return f"{super().__str__()}; is it alive, and do all workers call step() equally often?"


class PeerLost(PeerError):  # noqa: N818 - the word says it
    """The connection to a neighbour broke."""


class MismatchError(GossamerError):
    """Workers were started with different settings; every worker raises the same text."""

    def __init__(self, field: str, rank: int, found: str, expected: str) -> None:
        super().__init__(field, rank, found, expected)
        self.field, self.rank, self.found, self.expected = field, rank, found, expected

    def __str__(self) -> str:
        return (
            f"worker {self.rank} differs in '{self.field}': it has {self.found}, worker 0 has "
            f"{self.expected}; start all workers with the same settings"
        )


class Diverged(GossamerError, ValueError):  # noqa: N818 - the word says it
    """Training has left the finite numbers, or is far on its way out of them."""


class TheoryWarning(UserWarning):
    """The algorithm runs, but the paper's theorem does not cover this compressor."""
