"""The protocol of one member: links, members, and the edges that follow from them.

Like the links it has no sockets, threads or clocks. A thread with real sockets drives it, and so does a
simulated network with its own time, on which faults are rehearsed.

An edge of the graph is the unit of agreement: two members that both want it exchange rounds. Nobody has to
agree with everybody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from gossamer._mesh import greetings
from gossamer._mesh.company import TIMING, Company
from gossamer._mesh.contacts import IDLE, Close, Timing
from gossamer._mesh.frames import Kind
from gossamer._mesh.greetings import Goodbye
from gossamer._mesh.link import Link
from gossamer._mesh.members import Member, Status
from gossamer._mesh.wiring import Wiring


class Protocol(Company):
    """One member's links, what it knows of others, and its edges."""

    def __init__(
        self,
        me: Member,
        known: Iterable[Member],
        run: bytes,
        nonce: Callable[[], int],
        now: float,
        timing: Timing = TIMING,
    ) -> None:
        super().__init__(me, known, run, nonce, now, timing)
        self.wiring: Wiring | None = None  # how edges follow from the members; None: none are wanted
        self.wanted: dict[int, float] = {}  # the weights proposed for the edges that are wanted
        self.founding = False  # whether it is about to begin together with all others
        self.ready = False  # whether it exchanges rounds
        self.asked: deque[tuple[int, int]] = deque()  # who wants the model, from which piece on
        self._closing: dict[int, float] = {}  # when links were closed that had been idle

    def rewire(self, wiring: Wiring | None) -> None:
        """Want the edges that follow from the members and this graph, from now on."""
        self.wiring = wiring
        self._follow()

    def begin(self, *, together: bool = False) -> None:
        """Train from now on, and let everybody know: who comes later must not wait for a common beginning.

        Those that begin together want edges to all of them, also if one has not said yet that it begins.
        """
        self.meeting, self.founding = False, together
        self._spread(self.members.begin(), None)

    def end_founding(self) -> None:
        """Want edges to those that train, from now on."""
        self.founding = False
        self._follow()

    def be_ready(self) -> None:
        """Exchange rounds from now on: the worker is in its loop, and nobody will wait for it in vain."""
        if not self.ready:
            self.ready = True
            self._follow()

    def edges(self) -> dict[int, float]:
        """Return the edges along which rounds are exchanged, with the weights that this end proposes."""
        links = ((j, link) for j, link in self.links.items() if not link.rests)
        ready = (j for j, link in links if link.up and link.edge and link.their_edge)
        return {j: self.wanted[j] for j in sorted(ready) if j in self.wanted and not self.links[j].last}

    def ask_for_model(self, peer: int, first: int) -> None:
        """Ask a member for its model, from this piece on."""
        self._send(peer, Kind.ASK, greetings.write({"model": first}), self.links[peer].epoch)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._advance(now)
        self._spread(self.members.tick(self.now), None)
        for link in list(self.links.values()):
            self._tend(link)
            if self.wiring is not None and (link.over or self._is_idle(link)):
                self._release(link)
        self._close_idle()
        if not all(peer in self.links and self.links[peer].wanted for peer in self.wanted):
            self._follow()  # one left, its link was closed, and it is back: nobody else will say so again
        pause = self.timing.hello if self.meeting else self.timing.seek
        if self.now - self._sought >= pause and not self.leaving and (self.meeting or self.wiring):
            self._sought = self.now
            self._seek()

    def _is_idle(self, link: Link) -> bool:
        """Return whether a link is of no use: neither end wants the edge, or is about to; nothing moves."""
        comes = self.members.by_id[link.peer].status == Status.WAITING
        moves = any(s.queue or s.held or s.unclaimed for s in link.streams)
        if link.wanted or comes or moves or link.peer in self.in_use or (link.up and link.their_edge):
            link.used = self.now
        return self.now - link.used > 2 * self.timing.silence

    def _release(self, link: Link) -> None:
        """Close a link that nobody needs, unless messages of a member that has left wait to be taken."""
        if link.over and any(s.held for s in link.streams):
            return
        if link.up and not link.over:
            self._beat(link)  # it says what was taken: the peer sends the rest again
            self._down(link, IDLE, tell=True)
            self._closing[link.peer] = self.now
        else:
            self.out.append(Close(link.peer))
        del self.links[link.peer]

    def _close_idle(self) -> None:
        """Close connections some time after the goodbye: a greeting that follows it must not overtake it."""
        for peer, since in list(self._closing.items()):
            if peer in self.links or self.now - since > self.timing.silence:
                del self._closing[peer]
                if peer not in self.links:
                    self.out.append(Close(peer))

    def _on_goodbye(self, link: Link, goodbye: Goodbye) -> None:
        super()._on_goodbye(link, goodbye)
        waits = any(s.queue for s in link.streams)  # to be sent again
        if not link.up and not link.wanted and not waits and self.wiring is not None:
            del self.links[link.peer]  # otherwise it would be greeted, and the link be idle again

    def _on_question(self, peer: int, first: int) -> None:
        """Remember who wants the model, and of each only what it has asked last."""
        others = [question for question in self.asked if question[0] != peer]
        self.asked.clear()
        self.asked.extend([*others, (peer, first)])

    def _follow(self) -> None:
        """Follow the members with the edges that are wanted."""
        if self.wiring is None:
            return
        waiting = frozenset[int]() if self.founding else self.members.waiting()
        there = (self.members.alive() - waiting) | {self.id}
        self.wanted = self.wiring.edges(self.id, list(self.members.by_id), there)
        for peer in self.wanted:
            link = self.need(peer)
            link.wanted = True
            if self.ready and not link.edge:
                link.edge = True
                if link.up:
                    self._beat(link)
        for link in list(self.links.values()):
            if link.wanted and link.peer not in self.wanted:
                link.edge = link.wanted = False
                left = self.members.by_id[link.peer].status == Status.LEFT  # others may have heard sooner
                if link.up and (left or link.last is not None):
                    continue  # its last messages are on the way
                if link.up:
                    self._down(link, "not wanted", tell=True)
                del self.links[link.peer]
