"""A model of whole numbers, and what a worker knows of its neighbours': the mathematics of a rehearsal.

It is CHOCO's exchange, where a new neighbour needs a copy, or plain gossip, where it does not. What is sent
is rounded; what is computed is not, so the two ends of an edge can be compared exactly.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING

from gossamer._mesh.link import Arriving
from gossamer._mesh.neighbourhood import Edge
from tests.support.rehearsal_truth import UNIT, Part, require

if TYPE_CHECKING:
    from tests.support.rehearsal import Stage

ENTRIES = 3  # of a model


class Model:
    """A worker's model and its replicas of its neighbours' models."""

    def __init__(self, stage: Stage, me: int, start: list[int]) -> None:
        self._stage, self._me = stage, me
        self.x = [v * UNIT for v in start]
        self.announced = list(start)  # what neighbours know, as of the last round
        self.next = self.announced  # and as of this one
        self.replicas: dict[int, list[int]] = {}
        self.edges: dict[int, Edge] = {}  # those of the neighbourhood
        self._taken: Counter[int] = Counter()  # messages in each replica
        stage.truth.add(self.x)

    def copy(self) -> memoryview | None:
        """Return what a new neighbour must know of this worker."""
        return memoryview(_pack(self.announced)) if self._stage.plot.copies else None

    def meet(self, peer: int, copy: Arriving | None) -> None:
        """Begin to know a neighbour."""
        require(peer not in self.replicas, f"worker {self._me} meets worker {peer} again before they parted")
        self.replicas[peer] = list(self._stage.plot.start) if copy is None else _unpack(copy.payload())
        self._taken[peer] = 0

    def part(self, peer: int) -> None:
        """Forget a neighbour."""
        del self.replicas[peer]

    def catch_up(self, peer: int, message: Arriving) -> None:
        """Take a message, and compare what it makes of the neighbour with what the neighbour is."""
        plot, replica = self._stage.plot, self.replicas[peer]
        entries = self._entries(self._taken[peer] % plot.phases)
        values = _unpack(message.payload())
        require(len(entries) == len(values), "a message is taken for that of another phase")
        for k, value in zip(entries, values, strict=True):
            replica[k] = value + (replica[k] if plot.copies else 0)
        self._taken[peer] += 1
        if (
            plot.copies or self._taken[peer] % plot.phases == 0
        ):  # without a copy, the first phase tells a part
            epoch = self.edges[peer].epoch
            self._stage.truth.compare(self._me, peer, epoch, self._taken[peer], replica)

    def digests(self, peer: int) -> tuple[bytes, bytes] | None:
        """Return digests of what the peer should believe of this worker, and of what is believed of it."""
        if not self._stage.plot.copies:
            return None
        return _pack(self.announced)[:8], _pack(self.replicas[peer])[:8]

    def spoil(self, peer: int) -> None:
        """Change what is known of a neighbour, as a fault of the memory would."""
        self.replicas[peer][0] += 1

    def update(self) -> None:
        """Take a step of training."""
        step = [self._stage.random.randrange(-9, 10) * UNIT for _ in self.x]
        self.x = [a + b for a, b in zip(self.x, step, strict=True)]
        self.next = [(a + UNIT // 2) // UNIT for a in self.x]
        self._stage.truth.add(step)

    def message(self, phase: int) -> tuple[memoryview, list[int]]:
        """Return the message of a phase, and what is known of this worker by whoever has taken it."""
        known = list(self.announced)
        for earlier in range(phase + 1):
            for k in self._entries(earlier):
                known[k] = self.next[k]
        base = self.announced if self._stage.plot.copies else [0] * len(known)
        return memoryview(_pack([self.next[k] - base[k] for k in self._entries(phase)])), known

    def move(self, peer: int, weight: float) -> Part:
        """Move towards a neighbour."""
        if not weight:
            return Part(weight, (0,) * len(self.x))
        scale = UNIT // 4 if self._stage.plot.copies else UNIT
        factor, rest = divmod(weight * scale, 1)
        assert not rest, "a weight has few enough digits"
        pairs = zip(self.replicas[peer], self.announced, strict=True)
        move = tuple(int(factor) * (a - b) for a, b in pairs)
        self.x = [a + b for a, b in zip(self.x, move, strict=True)]
        return Part(weight, move)

    def _entries(self, phase: int) -> range:
        return range(phase, len(self.x), self._stage.plot.phases)


def _pack(values: list[int]) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _unpack(payload: bytes | memoryview) -> list[int]:
    return list(struct.unpack(f"<{len(payload) // 8}q", payload))
