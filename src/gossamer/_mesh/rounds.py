"""A worker's rounds over a mesh: along the edges that are there, with weights that both ends agreed on."""

from __future__ import annotations

import math
import time
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from typing import Protocol as Interface

from torch import Tensor

from gossamer._mesh.link import Arriving
from gossamer._mesh.neighbourhood import Due, Neighbourhood
from gossamer._mesh.newcomer import Donor
from gossamer._mesh.transport import MeshTransport, as_tensor
from gossamer._mesh.wiring import Graph, Wiring
from gossamer.rounds.drive import advance
from gossamer.rounds.phase import Inbox, Phase, Round, take_apart
from gossamer.rounds.view import LocalView
from gossamer.topology import Schedule, Topology


class Trainee(Interface):
    """The worker whose rounds these are."""

    @property
    def rounds(self) -> int:
        """The number of rounds done."""

    def exchange(self) -> Round:
        """Return the next round."""

    def see(self, view: LocalView) -> None:
        """Take part along these edges from now on."""

    def catch_up_to(self, rounds: int) -> None:
        """Go on with the others, if they are ahead."""


class TensorKnowledge(Interface):
    """What it knows of its neighbours, as tensors of bytes."""

    @property
    def keeps_copies(self) -> bool:
        """Whether something is kept of each neighbour that can be used again when it is late."""

    def model(self) -> tuple[Tensor, dict[str, Any]]:
        """Return a copy of the whole model for a newcomer, and what it must know beside it."""

    def forget(self) -> None:
        """Forget all neighbours."""

    def copy(self) -> Tensor | None:
        """Return what a new neighbour must know."""

    def meet(self, peer: int, copy: Tensor | None) -> None:
        """Begin to know a neighbour."""

    def part(self, peer: int) -> None:
        """Forget a neighbour."""

    def catch_up(self, peer: int, messages: Mapping[str, Tensor]) -> None:
        """Take the messages of an earlier round."""

    def digests(self, peer: int) -> tuple[bytes, bytes] | None:
        """Return digests of what the peer should believe of this worker, and of what is believed of it."""


class EdgeRounds:
    """All rounds of one worker. The transport's thread moves the frames; this runs in the worker's own."""

    def __init__(
        self, transport: MeshTransport, worker: Trainee, knowledge: TensorKnowledge, graph: Graph
    ) -> None:
        self.transport, self.worker, self._knowledge, self._graph = transport, worker, knowledge, graph
        self._hood = Neighbourhood(transport.protocol, self, may_lag=not transport.wait_for.for_all)
        self._donor = Donor(transport.protocol)
        self._sizes: dict[int, Mapping[str, int]] = {}  # of the messages in a phase, by peer and name
        self.missed: Counter[int] = Counter()  # phases that ended without a neighbour's message, by peer

    def found(self) -> None:
        """Begin a run with all members of the peers file; they have the same values and settings."""
        self._knowledge.forget()
        self._want_edges(together=True)
        transport = self.transport
        with transport.sockets.changed:
            transport.protocol.be_ready()
            breaks = Counter(transport.protocol.breaks)
        # Who is lost now comes back as one that joins: it is given the model in a round.
        transport.wait_until(
            lambda p: p.edges().keys() == p.wanted.keys() or bool(p.asked) or p.breaks != breaks,
            transport.deadline,
        )
        with transport.sockets.changed:
            self._hood.found()
            transport.protocol.end_founding()

    def begin_anew(self) -> None:
        """Know no neighbour yet, in a run that goes on; each sends a copy of what must be known of it."""
        with self.transport.sockets.changed:
            self._hood.give_up(list(self._hood.edges), "begins anew")
        self._knowledge.forget()
        self._want_edges()
        patience = 2 * self.transport.protocol.timing.silence  # then it begins with those that are there
        self.transport.wait_until(lambda p: bool(p.wanted) and all(p.links[j].up for j in p.wanted), patience)

    def _want_edges(self, *, together: bool = False) -> None:
        with self.transport.sockets.changed:
            self.transport.protocol.begin(together=together)
            self.transport.protocol.rewire(Wiring(self._graph))
            self.transport.sockets.wake()

    def begin(self) -> EdgeFlight:
        """Begin a round along the edges that are there."""
        return EdgeFlight(self)

    def open_round(self) -> dict[int, float]:
        """Follow what has changed since the last round; return the weights of the round to come."""
        protocol = self.transport.protocol
        if self._donor.wanted:
            self._donor.answer(self.transport.sockets.changed, *self._knowledge.model())
        with self.transport.sockets.changed:
            self.transport.follow_news()
            protocol.round = self.worker.rounds
            protocol.be_ready()
            weights = self._hood.begin()
            self.transport.sockets.wake()
        self.show(weights, tuple(weights))
        return weights

    def show(self, weights: Mapping[int, float], peers: tuple[int, ...]) -> None:
        """Let the worker see its edges; one that it does not know yet has no weight."""
        counted = weights if self._hood.may_lag and self._knowledge.keeps_copies else peers
        edges = self._hood.edges
        known = {j: weights[j] for j in counted if j in edges and edges[j].known}
        protocol = self.transport.protocol
        members = tuple(sorted(protocol.members.by_id))
        graph = self._graph(len(members))
        own = _own_weight(graph, members.index(protocol.id), known, members)
        row = dict(sorted({**known, protocol.id: own}.items()))
        self._view = LocalView(members, graph, row, peers, dict(self._hood.rounds))
        self.worker.see(self._view)

    def post(self, phase: Phase, name: str) -> Counter[int]:
        """Send the messages of a phase; return their lengths by peer."""
        outbox, tag = phase.outbox(), zlib.crc32(name.encode())
        self._sizes = dict(phase.expect)
        transport = self.transport
        with transport.sockets.changed:
            for peer, message in outbox.items():
                due = Due(tag, sum(self._sizes[peer].values()))
                self._hood.post(peer, message.numpy().data, due, self.worker.rounds)
            transport.sockets.wake()
        sent = Counter({j: m.numel() for j, m in outbox.items()})
        transport.sent.update(sent)
        return sent

    def collect(self, phase: Phase, name: str) -> Inbox:
        """Wait for the phase; neighbours that are lost, or late beyond the deadline, are left out."""
        transport, began = self.transport, time.monotonic()
        arrived: dict[int, Arriving] = {}
        progress = _Progress()
        with transport.sockets.changed:
            expected = set(self._hood.awaited)
            while True:
                transport.follow_news()
                arrived |= self._hood.collect()
                left = transport.deadline - progress.pause(
                    {j: self._hood.come(j) for j in self._hood.awaited}
                )
                if self._hood.awaited and left <= 0:
                    self._hood.give_up_late(progress.late(transport.deadline))
                left = min(left, began + transport.wait_for.seconds - time.monotonic())
                enough = transport.wait_for.enough(len(arrived) + len(self._hood.awaited))
                if not self._hood.awaited or len(arrived) >= enough or left <= 0:
                    self._hood.go_on_without(transport.deadline)
                    break
                transport.sockets.changed.wait(left)
            transport.sockets.wake()
        transport.waited += time.monotonic() - began
        self.missed.update(expected - arrived.keys())
        arrived = {j: m for j, m in arrived.items() if j in self._hood.edges}
        return {j: self._open(j, arrived[j]) for j in sorted(arrived) if not self._kept(j, arrived[j])}

    def close_round(self) -> None:
        """Compare, every now and then, what is believed with what is."""
        with self.transport.sockets.changed:
            self._hood.close_round()
            self.transport.sockets.wake()
        if self._hood.may_lag and self._hood.edges:  # who is behind the others does not count its own rounds
            others = sorted(self._hood.rounds.get(j, 0) for j in self._hood.edges)
            self.worker.catch_up_to(others[(len(others) - 1) // 2])

    # What the neighbourhood asks for

    def digests(self, peer: int) -> tuple[bytes, bytes] | None:
        """Return digests of what the peer should believe of this worker, and of what is believed of it."""
        return self._knowledge.digests(peer)

    def copy(self) -> memoryview | None:
        """Return the bytes of this worker's copy."""
        copy = self._knowledge.copy()
        return None if copy is None else copy.numpy().data

    def meet(self, peer: int, copy: Arriving | None) -> None:
        """Begin to know a neighbour."""
        self._knowledge.meet(peer, None if copy is None else as_tensor(copy))

    def part(self, peer: int) -> None:
        """Forget a neighbour."""
        self._knowledge.part(peer)

    def catch_up(self, peer: int, message: Arriving) -> None:
        """Take a message that has waited for the peer's copy."""
        self.worker.see(replace(self._view, rounds={peer: message.round}))
        self._knowledge.catch_up(peer, take_apart(as_tensor(message), self._sizes[peer]))

    def _kept(self, peer: int, message: Arriving) -> bool:
        return self._hood.keep_for_later(peer, message)

    def _open(self, peer: int, message: Arriving) -> dict[str, Tensor]:
        self.transport.received[peer] += message.nbytes
        return take_apart(as_tensor(message), self._sizes[peer])


class _Progress:
    """How long nothing has come of what is awaited: a message that is still arriving is not late."""

    def __init__(self) -> None:
        self._come: dict[int, int] = {}
        self._since: dict[int, float] = {}
        self._now = 0.0

    def pause(self, come: Mapping[int, int]) -> float:
        """Take how many bytes of each peer's message have come; return the longest pause, in seconds."""
        self._now = time.monotonic()
        for j, nbytes in come.items():
            if self._come.get(j) != nbytes:
                self._come[j], self._since[j] = nbytes, self._now
        self._since = {j: since for j, since in self._since.items() if j in come}
        return max((self._now - since for since in self._since.values()), default=0.0)

    def late(self, deadline: float) -> list[int]:
        """Return the peers of which nothing has come for so long."""
        return [j for j, since in self._since.items() if self._now - since >= deadline]


class EdgeFlight:
    """A round in flight along edges: begun on construction, ended by `finish`."""

    def __init__(self, rounds: EdgeRounds) -> None:
        self._rounds = rounds
        self.sent: Counter[int] = Counter()  # bytes by peer
        self._phases = 0
        self._weights = rounds.open_round()
        self._round = rounds.worker.exchange()
        self._phase = self._post(advance(self._round, None))

    def finish(self) -> Counter[int]:
        """Run the round to its end and return the bytes it has sent, by peer."""
        while self._phase is not None:
            inbox = self._rounds.collect(self._phase, self._tag)
            self._rounds.show(self._weights, tuple(inbox))
            self._phase = self._post(advance(self._round, inbox))
        self._rounds.close_round()
        return self.sent

    def abandon(self) -> None:
        """Receive the messages in flight and drop the round without finishing it."""
        if self._phase is not None:
            self._rounds.collect(self._phase, self._tag)
        self._round.close()
        self._phase = None

    @property
    def _tag(self) -> str:
        return f"phase {self._phases}"

    def _post(self, phase: Phase | None) -> Phase | None:
        if phase is not None:
            self._phases += 1
            self.sent.update(self._rounds.post(phase, self._tag))
        return phase


def _own_weight(
    graph: Topology | Schedule, place: int, others: Mapping[int, float], members: tuple[int, ...]
) -> float:
    """Return what is left of 1; the graph's own number where all its edges are there, bit for bit."""
    row = graph.weights(place, 0)
    own = row.pop(place)
    if {members[i]: w for i, w in row.items()} == dict(others):
        return own
    return 1.0 - math.fsum(others.values())
