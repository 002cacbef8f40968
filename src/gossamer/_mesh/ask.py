"""Ask members for their status, from outside of any run and without disturbing it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from types import TracebackType
from typing import Any, Self

from gossamer._mesh import status
from gossamer._mesh.connections import Connection, Dialler, Stage, Trouble
from gossamer._mesh.frames import VERSION, Refused
from gossamer._mesh.keys import Key
from gossamer._mesh.mechanism import explain
from gossamer._mesh.needs import require_zmq
from gossamer._mesh.peers import Peer, parse_address
from gossamer._mesh.status import MemberStatus

PATIENCE = 5.0  # seconds for an answer
SETTLING = 0.5  # seconds for which a failure may still turn out to be none: libzmq tries again meanwhile
AGAIN = 0.5  # seconds between two questions to one member: it answers only so many in a second
OPTIONS = {"IMMEDIATE": 1, "LINGER": 0, "CONNECT_TIMEOUT": 0}  # nothing waits for a connection that may come


@dataclass(frozen=True)
class Answer:
    """What a member has answered, or why it has not."""

    peer: Peer
    told: MemberStatus | None
    trouble: str = ""
    took: float = 0.0  # seconds
    ahead: float = 0.0  # seconds by which its clock is ahead of this machine's


@dataclass
class Contact:
    """One member that is asked."""

    peer: Peer
    numeric: str = ""  # its address without names; "" before it is known
    connection: Connection | None = None
    dialled: float = 0.0  # when
    asked: float = 0.0  # when, the last time
    answer: Answer | None = None
    lookup: threading.Thread | None = None  # asks for the numbers of its name
    unresolved: bool = False

    @property
    def trouble(self) -> str:
        """Why it has not answered."""
        if self.connection is None:
            return Trouble.UNRESOLVED
        return self.connection.trouble or Trouble.SILENT

    @property
    def failed(self) -> bool:
        """Whether something went wrong that waiting will hardly mend."""
        return self.unresolved or (self.connection is not None and bool(self.connection.failure))


class Asker:
    """Keeps a connection to each of some members, and asks them as often as one likes.

    It only ever asks, for the status unless a subclass has another question. So it may have the key of a
    member whose worker is running.
    """

    def __init__(self, peers: Sequence[Peer], key: Key | None, own: str = "") -> None:
        zmq = self._zmq = require_zmq()
        self._context, self._poller = zmq.Context(), zmq.Poller()
        self._dialler = Dialler(self._context, self._poller, key, own)
        self._contacts = [Contact(peer) for peer in peers]
        self.number = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Idempotent."""
        for contact in self._contacts:
            self._hang_up(contact)
        self._context.destroy(linger=0)

    def ask(self, patience: float = PATIENCE) -> list[Answer]:
        """Ask all, and return what each has answered in so many seconds at most."""
        began = time.monotonic()
        self.number += 1
        for contact in self._contacts:
            contact.answer, contact.asked = None, 0.0
            self._renew(contact, began)
        while not self._done(began, patience):
            self._advance()
        return [c.answer or Answer(c.peer, None, explain(c.trouble, c.numeric)) for c in self._contacts]

    def _done(self, began: float, patience: float) -> bool:
        passed = time.monotonic() - began
        waiting = [c for c in self._contacts if c.answer is None]
        return passed > patience or (all(c.failed for c in waiting) and (passed > SETTLING or not waiting))

    def _advance(self) -> None:
        """Move things on, for a moment."""
        for contact in self._contacts:
            if contact.connection is None and contact.numeric:
                self._dial(contact)
        by_socket = {c.connection.socket: c for c in self._contacts if c.connection is not None}
        for found, _ in self._poller.poll(20):
            if found in by_socket:
                self._read(by_socket[found])
            else:
                for _ in self._dialler.events(self._dialler.by_monitor[found]):
                    pass
        now = time.monotonic()
        for contact in by_socket.values():
            up = contact.connection is not None and contact.connection.stage == Stage.UP
            if up and contact.answer is None and now - contact.asked > AGAIN:
                self._send(contact, now)

    def _renew(self, contact: Contact, now: float) -> None:
        """Begin again where nothing will come of what was begun before."""
        connection = contact.connection
        if connection is not None:
            dropped = connection.trouble == Trouble.FILTERED and now - contact.dialled > PATIENCE
            if connection.over or dropped:
                self._hang_up(contact)
        if not contact.numeric and (contact.lookup is None or not contact.lookup.is_alive()):
            _resolve(contact)

    def _dial(self, contact: Contact) -> None:
        peer, contact.dialled = contact.peer, time.monotonic()
        contact.connection = self._dialler.dial(peer.id, contact.numeric, peer.key, **OPTIONS)
        self._poller.register(contact.connection.socket, self._zmq.POLLIN)

    def _hang_up(self, contact: Contact) -> None:
        if contact.connection is not None:
            self._poller.unregister(contact.connection.socket)
            self._dialler.hang_up(contact.connection)
            contact.connection = None

    def _send(self, contact: Contact, now: float) -> None:
        assert contact.connection is not None, "it is up"
        contact.asked = now
        with suppress(self._zmq.Again):  # it has just gone
            contact.connection.socket.send(self.question(), self._zmq.NOBLOCK)

    def _read(self, contact: Contact) -> None:
        assert contact.connection is not None, "something came over it"
        data = contact.connection.socket.recv()
        took = time.monotonic() - contact.asked
        try:
            self.take(contact, data, took)
        except Refused as refusal:
            theirs = f"frames of version {data[2]}, here {VERSION}" if str(refusal) == "version" else "unread"
            contact.answer = Answer(contact.peer, None, f"it has another version of gossamer ({theirs})")

    def question(self) -> bytes:
        """Return the frame that is sent."""
        return status.question(self.number)

    def take(self, contact: Contact, data: bytes, took: float) -> None:
        """Take an answer, if it is one to the last question, or raise Refused."""
        number, told = status.read_answer(data)
        if number == self.number and contact.answer is None:
            ahead = told.time - (time.time() - took / 2)
            contact.answer = Answer(contact.peer, told, took=took, ahead=ahead)


def _resolve(contact: Contact) -> None:
    """Find the numbers of an address: at once, or in a thread that asks for those of a name."""
    host, port = parse_address(contact.peer.address)
    try:
        ip_address(host)
        contact.numeric = contact.peer.address
    except ValueError:
        contact.unresolved = False
        contact.lookup = threading.Thread(target=_look_up, args=(contact, host, port), daemon=True)
        contact.lookup.start()


def _look_up(contact: Contact, host: str, port: int) -> None:
    try:  # as libzmq does for a worker
        found: Any = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
        contact.numeric = f"{found[0][4][0]}:{port}"
    except OSError:
        contact.unresolved = True
