"""What really happened in a rehearsal, told by the workers themselves, and what must be true of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gossamer._mesh import link as product
from gossamer._mesh.link import Link, Stream
from gossamer._mesh.neighbourhood import Edge

UNIT = 1 << 64  # models are whole numbers of 1/UNIT: no sum of theirs is ever rounded
ROUNDING = 1e-12  # a sum of weights may exceed 1 by this
MOST_WAITING = 500  # messages that wait for a copy: it is given up after some seconds without progress


class Broken(AssertionError):  # noqa: N818 - it is no error of the rehearsal
    """Something that must always be true is not."""


class Part(NamedTuple):
    """One end's part in an exchange along an edge."""

    weight: float
    move: tuple[int, ...]


def require(holds: object, what: str) -> None:
    """Raise Broken unless something holds."""
    if not holds:
        raise Broken(what)


class Truth:
    """Every exchange of every edge, from both ends, and every value that a worker has announced."""

    def __init__(self, entries: int, phases: int) -> None:
        self._phases = phases
        self._sum = [0] * entries  # of all starts and updates
        self._exchanges: dict[tuple[int, int], dict[int, Part]] = {}  # by epoch and number, then by worker
        self._announced: dict[tuple[int, int, int], list[int]] = {}  # by epoch, worker and number
        self.ended: defaultdict[int, set[str]] = defaultdict(set)  # why edges ended, by their epochs
        self.spoilt: set[int] = set()  # the epochs of edges where a replica was changed by a fault

    def add(self, values: Iterable[int]) -> None:
        """Take note of a start or an update, from outside of all exchanges."""
        self._sum = [s + v for s, v in zip(self._sum, values, strict=True)]

    def announce(self, me: int, epoch: int, number: int, values: list[int]) -> None:
        """Take note of what a neighbour will know once it has this message."""
        if (epoch, me, number) in self._announced:
            raise Broken(f"worker {me} sent message {number} twice")
        self._announced[epoch, me, number] = values

    def compare(self, me: int, peer: int, epoch: int, number: int, replica: list[int]) -> None:
        """Check a replica, which has taken so many messages, with what its owner has announced."""
        announced = self._announced.get((epoch, peer, number))
        if announced is None:
            raise Broken(f"worker {me} took a message that worker {peer} never sent")
        if announced != replica and epoch not in self.spoilt:
            raise Broken(f"worker {me} believes {replica} of worker {peer}, which is {announced}")

    def exchange(self, me: int, peer: int, epoch: int, number: int, part: Part) -> None:
        """Check what an end does in a round of an edge with what the other end does in the same round.

        Both use the same weight and move by opposite amounts, or one of them does not take part; in the round
        before, neither was missing. So at most one exchange of an edge is done by half, its last.
        """
        parts = self._exchanges.setdefault((epoch, number), {})
        if me in parts:
            raise Broken(f"worker {me} did exchange {number} with worker {peer} twice")
        parts[me] = part
        before = number - self._phases
        if before and len(self._exchanges.get((epoch, before), ())) != 2:
            raise Broken(f"workers {me} and {peer} are at {number}, and not both have done {before}")
        if len(parts) == 2 and epoch not in self.spoilt:
            one, other = parts.values()
            if one.weight != other.weight:
                raise Broken(f"workers {me} and {peer} used the weights {one.weight} and {other.weight}")
            if any(a + b for a, b in zip(one.move, other.move, strict=True)):
                raise Broken(f"workers {me} and {peer} moved by different amounts in their round {number}")

    def halves(self) -> dict[int, Part]:
        """Return what one end did and the other did not, by the edge's epoch."""
        one_end = {key: parts for key, parts in self._exchanges.items() if len(parts) == 1}
        found = {epoch: part for (epoch, _), parts in one_end.items() for part in parts.values()}
        return {epoch: part for epoch, part in found.items() if part.weight}

    def whole(self) -> int:
        """Return how many exchanges both ends have done."""
        return sum(len(p) == 2 and any(part.weight for part in p.values()) for p in self._exchanges.values())

    def check_sum(self, models: Sequence[Sequence[int]]) -> None:
        """Check the sum of all models, of the living and the dead: only halves and faults may change it."""
        odd = [p for (epoch, _), p in self._exchanges.items() if len(p) == 1 or epoch in self.spoilt]
        moves = [part.move for parts in odd for part in parts.values()]
        expected = [sum(column) for column in zip(self._sum, *moves, strict=True)]
        found = [sum(column) for column in zip(*models, strict=True)]
        require(found == expected, "the sum of all models is not what went into them")


def check_weights(me: int, weights: Mapping[int, float], edges: Mapping[int, Edge]) -> None:
    """Check that a worker's own weight, which is what is left of 1, is never negative."""
    if any(w < 0.0 for w in weights.values()) or sum(weights.values()) > 1.0 + ROUNDING:
        raise Broken(f"worker {me} gives away less than 0 or more than 1: {weights}")
    for peer, weight in weights.items():
        if weight and not edges[peer].known:
            raise Broken(f"worker {me} gives a weight to worker {peer}, which it does not know")


def check_known(me: int, replicas: Mapping[int, object], edges: Mapping[int, Edge]) -> None:
    """Check that a worker keeps replicas of those that it has an edge to, and of nobody else."""
    met = 0
    for peer, edge in edges.items():
        if edge.known and not edge.met:
            raise Broken(f"worker {me} believes to know worker {peer}, which it has not met")
        if edge.met:
            met += 1
            if peer not in replicas:
                raise Broken(f"worker {me} has met worker {peer}, of which it has no replica")
        elif len(edge.waiting) > MOST_WAITING:
            raise Broken(f"{len(edge.waiting)} messages wait for a copy")
    if met != len(replicas):
        raise Broken(f"worker {me} has edges to {met} that it has met, and replicas of {set(replicas)}")


def check_link(link: Link) -> None:
    """Check that what a link holds is bounded, and counted as it is."""
    for s in link.streams:
        if s.sent + len(s.queue) != s.posted:
            raise Broken("a message was lost before it was sent")
        if len(s.unclaimed) > 1 and sum(n for _, n in s.unclaimed) > product.WINDOW:
            raise Broken("more was sent than the peer has room for")
        if s.arriving or s.early or s.held:
            _check_arriving(s)


def check_arrived(sender: Link, receiver: Link) -> None:
    """Check that all that was sent has arrived, where nothing is on its way and both ends are in touch."""
    if not (sender.up and receiver.up and sender.epoch == receiver.epoch):
        return
    for there, here in zip(sender.streams, receiver.streams, strict=True):
        missing = [
            number
            for number in range(here.taken + 1, there.sent + 1)
            if number not in here.early and not here.complete(number)
        ]
        if missing:
            raise Broken(f"messages {missing} of worker {receiver.peer} were lost, and nobody knows")


def _check_arriving(s: Stream) -> None:
    held = sum(len(piece) for message in s.arriving.values() for piece in message.pieces.values())
    if held != s.held or held > product.MOST_HELD:
        raise Broken(f"{held} bytes are held, counted as {s.held}")
    for number in (*s.arriving, *s.early):
        if not s.taken < number <= s.taken + product.MOST_AHEAD:
            raise Broken(f"message {number} is there, and all up to {s.taken} were taken")
    if not s.early.isdisjoint(s.arriving):
        raise Broken("a message has arrived again after it was taken")
