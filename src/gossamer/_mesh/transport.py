"""The mesh as a transport: messages between any two members, over links that open when they are needed."""

from __future__ import annotations

import logging
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gossamer._mesh.contacts import IDLE, News
from gossamer._mesh.link import OTHERS, Arriving, Message
from gossamer._mesh.members import Member, Status
from gossamer._mesh.patience import Patience
from gossamer._mesh.protocol import Protocol
from gossamer._mesh.sockets import Sockets
from gossamer.errors import PeerLost, PeerTimeout, WireError
from gossamer.transport.base import Ticket, Transport

log = logging.getLogger("gossamer")

ALL = Patience()
LOUD = ("down", "dead", "left", "refused")  # news that people read without asking for them
QUIET = (IDLE, "not wanted", "new settings", "begins anew")  # reasons that nobody needs to worry about


@dataclass
class _Expected:
    """What is awaited from one peer: a number in an epoch, which is not known before the link is up."""

    number: int
    size: int
    epoch: int


class MeshTransport(Transport):
    """A member's end of the mesh. Made by `gossamer.mesh`."""

    def __init__(
        self,
        protocol: Protocol,
        sockets: Sockets,
        size: int,
        deadline: float,
        wait_for: Patience = ALL,
        everybody: Sequence[int] = (),
    ) -> None:
        super().__init__(protocol.id, size, deadline)
        self.everybody = everybody or self.everybody
        self.wait_for = wait_for  # in a round
        self.protocol, self.sockets = protocol, sockets
        self.on_change: Callable[[News], None] | None = None  # is told of members that come and go
        self._asked: Counter[tuple[int, int]] = Counter()  # messages expected so far, by peer and epoch
        sockets.start()

    @property
    def members(self) -> list[Member]:
        """All members that are known, and what is believed of each."""
        with self.sockets.changed:
            return sorted(self.protocol.members.by_id.values(), key=lambda member: member.id)

    def present(self) -> list[int]:
        """Return the ids of the members that train, this one included: no other would answer."""
        with self.sockets.changed:
            members = self.protocol.members
            return sorted((members.alive() - members.waiting()) | {self.rank})

    @contextmanager
    def together(self) -> Iterator[None]:
        """Do something with all members; it fails if a link breaks that was used for it."""
        self._use_none()
        try:
            yield
        finally:
            self._use_none()

    def _use_none(self) -> None:
        with self.sockets.changed:
            self.protocol.in_use.clear()

    def begin_anew(self, peers: Iterable[int]) -> None:
        """End the links to members after something that all do together has failed, and wait a little.

        Messages of the failed attempt are then refused, and members that are gone become known as such.
        """
        with self.sockets.changed:
            self.follow_news()  # what was numbered before belongs to what has failed
            for peer in peers:
                self._asked.pop((peer, 0), None)
                link = self.protocol.links.get(peer)
                if link is not None and link.up:
                    self.protocol.end(peer, "begins anew")
                elif link is not None:
                    link.end()  # what waits to be sent
            self.sockets.wake()
        time.sleep(self.protocol.timing.beat)

    def begin(
        self, outbox: Mapping[int, Tensor], sizes: Mapping[int, int], ticket: Ticket
    ) -> dict[int, _Expected]:
        """Queue all messages, and number those that are expected."""
        phase = zlib.crc32(ticket.name.encode())
        expected = {}
        with self.sockets.changed:
            self.follow_news()
            for j in {**sizes, **outbox}:
                self.protocol.in_use.setdefault(j, self.protocol.breaks[j])
            for j, size in sizes.items():
                link = self.protocol.need(j)
                epoch = link.epoch if link.up else 0
                self._asked[j, epoch] += 1
                expected[j] = _Expected(self._asked[j, epoch], size, epoch)
            for j, message in outbox.items():
                self.protocol.post(j, OTHERS, Message(message.numpy().data, phase))
            self.sockets.wake()
        return expected

    def collect(self, ticket: Ticket, need: int | None, until: float | None) -> Mapping[int, Tensor]:
        """Wait until all messages are there, or so many, or until then."""
        expected: dict[int, _Expected] = ticket.own
        arrived = dict(ticket.arrived)
        enough = len(expected) if need is None else min(need, len(expected))
        end = time.monotonic() + self.deadline
        limit = end if until is None else min(until, end)
        with self.sockets.changed:
            while True:
                self.follow_news()
                for j in [j for j in expected if j not in arrived]:
                    found = self._take(j, expected[j], ticket)
                    if found is not None:
                        arrived[j] = _opened(found, expected[j], ticket, j)
                left = limit - time.monotonic()
                if len(arrived) >= enough or (until is not None and left <= 0):
                    self.sockets.wake()
                    return arrived
                self._require_unbroken(ticket)
                if left <= 0:
                    late = next(j for j in expected if j not in arrived)
                    raise PeerTimeout(late, ticket.name, time.monotonic() - ticket.began, "did not answer")
                self.sockets.changed.wait(left)

    def close(self) -> None:
        """Say goodbye and disconnect. Idempotent."""
        self.sockets.close()

    def wait_until(self, condition: Callable[[Protocol], bool], patience: float) -> bool:
        """Wait until something is so; return whether it is, after so many seconds at most."""
        with self.sockets.changed:
            self.sockets.require_running()
            self.sockets.wake()
            self.sockets.changed.wait_for(lambda: self.sockets.failed or condition(self.protocol), patience)
            self.sockets.require_running()
            return condition(self.protocol)

    def follow_news(self) -> None:
        """Tell people what has happened, also if nothing can happen any more; with the lock held."""
        self.sockets.require_running()
        while self.protocol.news:
            news = self.protocol.news.popleft()
            if news.what == "up":  # what was numbered before is numbered in this epoch
                epoch = self.protocol.links[news.peer].epoch if news.peer in self.protocol.links else 0
                self._asked[news.peer, epoch] += self._asked.pop((news.peer, 0), 0)
            self._log(news)
            if self.on_change is not None:
                self.on_change(news)

    def _log(self, news: News) -> None:
        level = logging.WARNING if news.what in LOUD and news.reason not in QUIET else logging.INFO
        reason = f" ({news.reason})" if news.reason else ""
        name, there = self.protocol.members.by_id[news.peer].name, len(self.protocol.members.alive())
        log.log(level, "%s is %s%s; %d members are there", name, news.what, reason, there)

    def _require_unbroken(self, ticket: Ticket) -> None:
        """Raise PeerLost if a peer may not know any more what it was sent, or told, in an earlier phase.

        Nothing may be expected from it now. But it has begun anew, and waits for what it will not get again.
        """
        for peer, before in self.protocol.in_use.items():
            left = self.protocol.members.by_id[peer].status == Status.LEFT  # when it needed nothing more
            if self.protocol.breaks[peer] != before and not left:
                raise _lost(peer, ticket, "its connection broke")

    def _take(self, peer: int, expected: _Expected, ticket: Ticket) -> Arriving | None:
        """Return a message that has arrived, or raise PeerLost if it never will."""
        link = self.protocol.links.get(peer)
        if link is not None and link.up and not expected.epoch:
            expected.epoch = link.epoch
        found = None
        if link is not None and link.epoch == expected.epoch:
            found = self.protocol.take(peer, OTHERS, expected.number)
        gone = link is None or link.over or (expected.epoch and link.epoch != expected.epoch)
        if found is None and gone:
            raise _lost(peer, ticket, "it has left" if link and link.over else "its connection broke")
        return found


def _lost(peer: int, ticket: Ticket, reason: str) -> PeerLost:
    return PeerLost(peer, ticket.name, time.monotonic() - ticket.began, f"was lost ({reason})")


def _opened(found: Arriving, expected: _Expected, ticket: Ticket, peer: int) -> Tensor:
    """Return a message as a tensor of its own."""
    if found.phase != zlib.crc32(ticket.name.encode()):
        raise WireError(f"it does not belong to {ticket.name}: is that worker elsewhere in its script?", peer)
    if found.nbytes != expected.size:
        raise WireError(f"{found.nbytes} bytes received, {expected.size} expected", peer)
    return as_tensor(found)


def as_tensor(found: Arriving) -> Tensor:
    """Return the bytes of a message."""
    message = torch.empty(found.nbytes, dtype=torch.uint8)
    at = 0
    for i in range(found.count):
        piece = np.frombuffer(found.pieces[i], dtype=np.uint8)
        message.numpy()[at : at + piece.size] = piece
        at += piece.size
    return message
