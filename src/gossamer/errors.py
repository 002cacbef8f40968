"""What can go wrong, as a tree.

GossamerError
├── WireError        a message that is truncated, corrupted or not ours
├── PeerError        a neighbour did not do its part
│   ├── PeerTimeout  it stayed silent past the deadline
│   └── PeerLost     its connection broke
├── MismatchError    workers were started with different settings
├── PackageError     what an installed package adds to Gossamer cannot be used
└── Diverged         numbers are no longer finite; also a ValueError

Mistakes in the arguments of a call are plain ValueErrors that say what to do instead.
TheoryWarning marks combinations that run but that no theorem covers.
"""

from __future__ import annotations


class GossamerError(Exception):
    """Base class of Gossamer's own exceptions.

    The arguments are kept as they were given, so that an error can be pickled for another process.
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

    def __init__(self, peer: int, phase: str, age: float, cause: str, first_failure: str = "") -> None:
        super().__init__(peer, phase, age, cause, first_failure)
        self.peer, self.phase, self.age, self.cause = peer, phase, age, cause
        self.first_failure = first_failure  # the error of the worker that failed first, if it could report it

    def __str__(self) -> str:
        origin = f". The first to fail was {self.first_failure}" if self.first_failure else ""
        when = f"{self.age:.1f} s after the exchange began"
        return f"worker {self.peer} {self.cause} in {self.phase}, {when}{origin}"


class PeerTimeout(PeerError):  # noqa: N818 - the word says it
    """A neighbour stayed silent past the deadline."""

    def __str__(self) -> str:
        return super().__str__() if self.first_failure else f"{super().__str__()}. {self._likely_cause}"

    @property
    def _likely_cause(self) -> str:
        if self.phase.startswith("round"):
            return (
                "Is it alive, and do all workers call step() equally often, with the same number of batches? "
                "Has it entered consensus(), or frozen layers, alone? A worker that is busy elsewhere, as "
                "with an evaluation on one worker only, is waited for until the deadline: "
                "decentralize(..., deadline=seconds)"
            )
        if self.phase.startswith("average"):
            return (
                "All workers enter consensus(), consensus_distance() and mean() together, having called "
                "step() equally often: call them on every worker, not under `if rank == 0`, and evaluate or "
                "print inside on one of them if you like. "
                "For slow workers raise decentralize(..., deadline=seconds)"
            )
        return "Is it alive, and does it run the same script with the same settings?"


class PeerLost(PeerError):  # noqa: N818 - the word says it
    """The connection to a neighbour broke."""

    def __str__(self) -> str:
        if self.first_failure:
            return super().__str__()
        return (
            f"{super().__str__()}. It reported no error: was it killed, or has its script ended earlier than "
            f"this one, with fewer batches?"
        )


class MismatchError(GossamerError):
    """Workers have different settings. At the start every worker raises it with the same text."""

    def __init__(
        self,
        field: str,
        rank: int,
        found: str,
        expected: str,
        reference: int = 0,
        remedy: str = "start all workers with the same settings",
    ) -> None:
        super().__init__(field, rank, found, expected, reference, remedy)
        self.field, self.rank, self.found, self.expected = field, rank, found, expected
        self.reference, self.remedy = reference, remedy

    def __str__(self) -> str:
        return (
            f"worker {self.rank} differs in '{self.field}': it has {self.found}, worker {self.reference} has "
            f"{self.expected}; {self.remedy}"
        )


class PackageError(GossamerError):
    """What an installed package adds to Gossamer cannot be used; the text names the package."""


class Diverged(GossamerError, ValueError):  # noqa: N818 - the word says it
    """Numbers are infinite, NaN, or so large that they soon will be."""


class TheoryWarning(UserWarning):
    """The algorithm runs, but the paper's theorem does not cover this compressor."""
