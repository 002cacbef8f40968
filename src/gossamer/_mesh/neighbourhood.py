"""A worker's rounds along edges that come and go.

Both ends of an edge count its messages from 1 and use the same weight in the same round: the smaller of what
the two proposed in their messages of the round before. A proposal is 0 as long as an end does not know the
other, so an edge begins to count in the same round on both ends. The first messages say which weight counts
at once: none, unless both ends founded the run together. Since W = I - sum_e w_e (e_i - e_j)(e_i -
e_j)^T is symmetric and doubly stochastic for any edges and weights, the average of all workers is kept.

Where an algorithm keeps a replica of each neighbour, a new edge begins with a copy in full from each end. It
travels beside the rounds; the messages that arrive before it is complete wait for it, and are then taken a
few in each round, so that none is a long one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol as Interface

from gossamer._mesh.link import COPIES, ROUNDS, WINDOW, Arriving, Link, Message
from gossamer._mesh.protocol import Protocol

GUARD = 64  # rounds between two comparisons of what is believed
MORE = 2  # messages that are taken in a round beyond those that have come, if some have waited for a copy
DRIFT = "it is not what it was believed to be"
WRONG = "its message is not what is due"


class Knowledge(Interface):
    """What a worker knows of its neighbours."""

    def copy(self) -> memoryview | None:
        """Return what a new neighbour must know of this worker; None if it is nothing."""

    def meet(self, peer: int, copy: Arriving | None) -> None:
        """Begin to know a neighbour; without a copy, both have the values of the common start."""

    def part(self, peer: int) -> None:
        """Forget a neighbour."""

    def catch_up(self, peer: int, message: Arriving) -> None:
        """Take a message of an earlier round."""

    def digests(self, peer: int) -> tuple[bytes, bytes] | None:
        """Return digests of what the peer should believe of this worker, and of what is believed of it."""


@dataclass(frozen=True)
class Due:
    """What a message must be that is due."""

    phase: int
    nbytes: int | None = None  # of any length


@dataclass
class Edge:
    """One end of an edge, from its first message to its end."""

    epoch: int
    met: bool = False  # whether this end knows what the other was when the edge began
    known: bool = False  # whether it knows what the other is
    weight: float = 0.0  # in the round to come
    proposed: float = 0.0  # in this round's messages
    number: int = 0  # messages sent
    taken: int = 0  # messages received; as many as were sent, unless the peer may be late
    rounds: int = 0
    believed: tuple[int, bytes] = (0, b"")  # a digest of what was believed of the peer after a message
    waiting: deque[Arriving] = field(default_factory=deque)  # messages that were not taken before it is known
    left: int = 0  # messages that were left waiting in the last round
    due: Due | None = None  # what the next message must be
    heard: float = 0.0  # when the last message came
    held: int = 0  # bytes of the copy that were there ...
    since: float = 0.0  # ... at this time

    def awaits(self, message: Arriving) -> bool:
        """Return whether a message is what is due."""
        assert self.due is not None, "one was posted"
        return message.phase == self.due.phase and self.due.nbytes in (None, message.nbytes)


class Neighbourhood:
    """The edges of one worker. Whoever calls it holds the protocol's lock."""

    def __init__(self, protocol: Protocol, knowledge: Knowledge, *, may_lag: bool = False) -> None:
        self._protocol, self._knowledge = protocol, knowledge
        self.may_lag = may_lag  # whether a round may end without a neighbour's message, which then comes late
        self.edges: dict[int, Edge] = {}
        self.awaited: set[int] = set()  # whose message of this phase is not here yet
        self.rounds: dict[int, int] = {}  # the peers' own rounds, by their last messages

    def found(self) -> None:
        """Begin with all edges at once, where all workers have the same values and the same graph."""
        for peer, weight in self._protocol.edges().items():
            self._knowledge.meet(peer, None)
            epoch, now = self._link(peer).epoch, self._protocol.now
            self.edges[peer] = Edge(epoch, met=True, known=True, weight=weight, heard=now)

    def begin(self) -> dict[int, float]:
        """Follow what has changed since the last round; return the weights of the round to come.

        An edge that does not count yet has weight 0; messages are exchanged along it all the same.
        """
        ready = self._protocol.edges()
        for peer in [j for j, edge in self.edges.items() if j not in ready or not self._is_up(j, edge)]:
            if self._is_up(peer, self.edges[peer]) and self._link(peer).last is None:
                self._protocol.end(peer, "the edge is over")  # a new one must count from 1 again
            self._forget(peer)
        for link in self._protocol.links.values():
            if link.over and link.peer not in self.edges:
                link.forget_rounds()
        self.give_up([j for j, edge in self.edges.items() if self._has_drifted(j, edge)], DRIFT)
        ready = self._protocol.edges()
        for peer, weight in ready.items():
            edge = self.edges.get(peer) or self._new_edge(peer)
            if not edge.known:
                self._come_to_know(peer, edge)
            edge.proposed = weight if edge.known and edge.number else edge.weight
            if self.may_lag:  # an older weight need not fit beside those of newer edges
                edge.weight = min(edge.weight, weight)
        self.give_up([j for j, edge in self.edges.items() if self._is_stuck(j, edge)], "no copy came")
        return {j: self.edges[j].weight for j in sorted(self.edges)}

    def post(self, peer: int, payload: memoryview, due: Due, round: int) -> None:  # noqa: A002
        """Send a message of this round, and expect one in return."""
        edge = self.edges[peer]
        if not self._is_up(peer, edge):
            return
        if self.may_lag and sum(len(m.payload) for m in self._link(peer).streams[ROUNDS].queue) > WINDOW:
            self.give_up([peer], "it takes messages too slowly")  # they would be older and older
            return
        edge.number += 1
        edge.due = due
        self._protocol.post(peer, ROUNDS, Message(payload, due.phase, round, edge.proposed))
        self.awaited.add(peer)

    def come(self, peer: int) -> int:
        """Return how many bytes of a peer's messages are here and were not taken."""
        link = self._protocol.links.get(peer)
        return link.streams[ROUNDS].held if link else 0

    def collect(self) -> dict[int, Arriving]:
        """Return what has arrived of this phase; what is still `awaited` may come."""
        arrived = {}
        for peer in sorted(self.awaited):
            edge = self.edges[peer]
            if not self._is_up(peer, edge):
                self.drop(peer)
                continue
            found = self._protocol.take(peer, ROUNDS, edge.taken + 1)
            if found is not None and edge.taken == 0 and found.weight != edge.weight:
                self.give_up([peer], "it did not begin together with this worker")
            elif found is not None and not edge.awaits(found):
                self.give_up([peer], WRONG)
            elif found is not None:
                edge.taken += 1
                edge.heard = self._protocol.now
                self.awaited.remove(peer)
                arrived[peer] = self._latest(peer, edge, found)
                self.rounds[peer] = arrived[peer].round
                edge.weight = min(edge.proposed, arrived[peer].weight)
            elif self._link(peer).over:
                self.drop(peer)
        return arrived

    def _latest(self, peer: int, edge: Edge, message: Arriving) -> Arriving:
        """Return the newest message of a peer that may be ahead, after all before it have been taken."""
        while self.may_lag and self._link(peer).streams[ROUNDS].complete(edge.taken + 1):
            if not self.keep_for_later(peer, message):
                self._knowledge.catch_up(peer, message)
            later = self._protocol.take(peer, ROUNDS, edge.taken + 1)
            assert later is not None, "it is complete"
            edge.taken += 1
            if not edge.awaits(later):
                self.give_up([peer], WRONG)
                break
            message = later
        return message

    def go_on_without(self, deadline: float) -> None:
        """End the phase: messages that are late are taken in a later round, in their order.

        Who has sent none for longer than the deadline is given up.
        """
        now = self._protocol.now
        self.give_up_late(j for j in self.awaited if now - self.edges[j].heard > deadline)
        self.awaited.clear()

    def keep_for_later(self, peer: int, message: Arriving) -> bool:
        """Keep a message of a neighbour that is not known yet; return whether it was kept."""
        edge = self.edges[peer]
        if not edge.known:
            edge.waiting.append(message)
        return not edge.known

    def close_round(self) -> None:
        """Every now and then, tell each neighbour what it should believe of this worker."""
        for peer, edge in self.edges.items():
            edge.rounds += 1
            due = edge.known and edge.rounds % GUARD == 0 and not self.may_lag
            digests = self._knowledge.digests(peer) if due else None
            if digests is not None and self._is_up(peer, edge):
                own, edge.believed = digests[0], (edge.number, digests[1])
                self._protocol.show(peer, edge.number, own)

    def _has_drifted(self, peer: int, edge: Edge) -> bool:
        """Return whether the peer is not what it is believed to be."""
        number, digest = edge.believed
        return self._link(peer).digests.get(number, digest) != digest

    def drop(self, peer: int) -> None:
        """Leave an edge out from now on."""
        self.awaited.discard(peer)
        self._forget(peer)

    def give_up_late(self, peers: Iterable[int]) -> None:
        """End the edges to neighbours that live, and send nothing; until they go on they are left out."""
        late = list(peers)
        for peer in late:
            link = self._link(peer)
            link.stalled = link.round
        self.give_up(late, "deadline")

    def give_up(self, peers: Iterable[int], reason: str) -> None:
        """End the edges to neighbours that have kept this worker waiting too long."""
        for peer in list(peers):
            self._protocol.end(peer, reason)
            self.drop(peer)

    def _is_up(self, peer: int, edge: Edge) -> bool:
        return self._protocol.is_up(peer, edge.epoch)

    def _link(self, peer: int) -> Link:
        return self._protocol.links[peer]

    def _new_edge(self, peer: int) -> Edge:
        edge = self.edges[peer] = Edge(self._link(peer).epoch, heard=self._protocol.now)
        own = self._knowledge.copy()
        if own is None:
            edge.met = edge.known = True
            self._knowledge.meet(peer, None)
        else:
            self._protocol.post(peer, COPIES, Message(own, phase=0))
        return edge

    def _is_stuck(self, peer: int, edge: Edge) -> bool:
        """Return whether the peer sends rounds, but its copy makes no progress."""
        held, now = self._link(peer).streams[COPIES].held, self._protocol.now
        if edge.met or edge.number < 2 or held != edge.held:
            edge.held, edge.since = held, now
        return now - edge.since > 2 * self._protocol.timing.silence

    def _come_to_know(self, peer: int, edge: Edge) -> None:
        """Take the peer's copy if it is here, and then the messages that have waited for it."""
        if not edge.met:
            copy = self._protocol.take(peer, COPIES, 1)
            if copy is None:
                return
            self._knowledge.meet(peer, copy)
            edge.met, edge.left = True, len(edge.waiting)
        edge.left = max(0, edge.left - MORE)
        while len(edge.waiting) > edge.left:
            self._knowledge.catch_up(peer, edge.waiting.popleft())
        edge.known = not edge.waiting

    def _forget(self, peer: int) -> None:
        edge = self.edges.pop(peer)
        if edge.met:
            self._knowledge.part(peer)
