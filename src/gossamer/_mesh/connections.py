"""Connections as libzmq makes them: with which options, how encrypted, and what its events tell of each."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from gossamer._mesh import tcp_info
from gossamer._mesh.frames import HEADER, PIECE
from gossamer._mesh.keys import Key, z85
from gossamer._mesh.needs import require_zmq
from gossamer._mesh.tcp_info import TcpInfo, Wire

OPTIONS = {  # of every connection; milliseconds
    "LINGER": 100,  # a connection hands over at once what it can
    "RECONNECT_IVL": 100,
    "RECONNECT_IVL_MAX": 2000,
    "HANDSHAKE_IVL": 5000,  # nobody may hold a connection open without a key for longer
    "CONNECT_TIMEOUT": 5000,
    "SNDHWM": 0,  # bounded by the protocol, in bytes
    "RCVHWM": 0,
    "MAXMSGSIZE": HEADER.size + PIECE + 1024,  # encryption adds a little
    "TCP_KEEPALIVE": 1,
    "TCP_KEEPALIVE_IDLE": 10,  # seconds, as are the others of its kind
    "TCP_KEEPALIVE_INTVL": 5,
    "TCP_KEEPALIVE_CNT": 3,
    "BACKLOG": 1024,
}
EVENTS = (
    "CONNECTED",
    "CONNECT_RETRIED",
    "DISCONNECTED",
    "HANDSHAKE_SUCCEEDED",
    "HANDSHAKE_FAILED_NO_DETAIL",
    "HANDSHAKE_FAILED_PROTOCOL",
    "HANDSHAKE_FAILED_AUTH",
)


class Trouble(StrEnum):
    """Why a member cannot be reached."""

    UNRESOLVED = "its name does not resolve"
    FILTERED = "no answer to the attempt to connect: a firewall, or the machine is off"
    REFUSED = "nobody listens there, or a firewall is in between"
    HANGS = "what listens there says nothing: a worker that hangs, or another program"
    FOREIGN = "another program than a worker listens there"
    MIXED = "one end encrypts and the other does not"
    WRONG_KEY = "it has another key than the peers file says"
    NOT_ADMITTED = "it does not admit this worker's key"
    BROKEN = "its connection broke"
    SILENT = "it is connected, but does not answer"


FINAL = (Trouble.NOT_ADMITTED, Trouble.MIXED, Trouble.FOREIGN)  # after these libzmq does not try again


class Stage(Enum):
    """How far a connection has come."""

    DIALLED = 0
    REACHED = 1  # the other end has accepted it
    UP = 2  # the keys are right, and this worker's is admitted
    FAILED = 3


@dataclass(eq=False)
class Connection:
    """A connection to a member, and what libzmq's events have told of it so far."""

    peer: int
    encrypted: bool
    socket: Any = None
    monitor: Any = None  # the socket that tells of its events
    stage: Stage = Stage.DIALLED
    failure: Trouble | None = None
    wire: Wire | None = None

    @property
    def trouble(self) -> Trouble | None:
        """Why nothing gets through; None while the connection is up."""
        waiting = {Stage.DIALLED: Trouble.FILTERED, Stage.REACHED: Trouble.HANGS}
        return self.failure or waiting.get(self.stage)

    @property
    def over(self) -> bool:
        """Whether libzmq has given up, so that only a new connection can help."""
        return self.failure in FINAL

    def follow(self, event: str, value: int) -> None:
        """Learn from an event. An attempt that has failed stays so until the next one has got further."""
        if event == "CONNECTED":
            self.stage, self.wire = Stage.REACHED, tcp_info.find(value)
        elif event == "HANDSHAKE_SUCCEEDED":
            self.stage, self.failure = Stage.UP, None
        elif event == "DISCONNECTED":
            broken = {Stage.UP: Trouble.BROKEN, Stage.REACHED: Trouble.FOREIGN}
            self.failure = broken.get(self.stage, self.failure)
            self.stage, self.wire = Stage.FAILED, None
        elif event == "CONNECT_RETRIED":
            self.failure = Trouble.REFUSED if self.stage == Stage.DIALLED else self.failure
            self.stage = Stage.DIALLED
        elif event.startswith("HANDSHAKE_FAILED"):
            self.stage, self.failure = Stage.FAILED, self._why(event, value)

    def _why(self, event: str, value: int) -> Trouble:
        if event == "HANDSHAKE_FAILED_AUTH":
            return Trouble.NOT_ADMITTED
        if event == "HANDSHAKE_FAILED_PROTOCOL":
            return Trouble.MIXED
        if value == errno.EAGAIN:  # it has taken too long
            return Trouble.HANGS
        return Trouble.WRONG_KEY if self.encrypted else Trouble.MIXED

    def measured(self) -> TcpInfo | None:
        """Return what the kernel has measured of it, if it can be asked."""
        return tcp_info.read(self.wire) if self.wire is not None else None


class Dialler:
    """Makes connections in the name of one member, and reads libzmq's events of each.

    Without a key pair, the public key `own` is all that tells members apart; "" stands for the other end's.
    """

    def __init__(self, context: Any, poller: Any, key: Key | None, own: str) -> None:  # noqa: ANN401
        self._zmq, self._context, self._poller = require_zmq(), context, poller
        self._key, self._own, self._made = key, own, 0
        self.by_monitor: dict[Any, Connection] = {}

    def dial(self, peer: int, address: str, key: str, **options: int) -> Connection:
        """Begin to connect to the member with this address and public key."""
        zmq, own = self._zmq, self._key
        socket = new_socket(self._context, zmq.DEALER, address, **options)
        connection = Connection(peer, own is not None, socket)
        if own is not None:
            socket.curve_serverkey = z85(key)
            socket.curve_publickey, socket.curve_secretkey = z85(own.public), z85(own.secret)
        else:
            socket.setsockopt(zmq.IDENTITY, bytes.fromhex(self._own or key) + os.urandom(8))
        try:
            connection.monitor = self._watch(socket)  # before the first event
            self.by_monitor[connection.monitor] = connection
            socket.connect(f"tcp://{address}")
        except zmq.ZMQError:
            self.hang_up(connection)
            raise
        return connection

    def dial_all(self, count: int, peer: int, address: str, key: str, **options: int) -> list[Connection]:
        """Begin so many connections to a member, or none."""
        with ExitStack() as made:
            connections = []
            for _ in range(count):
                connections.append(self.dial(peer, address, key, **options))
                made.callback(self.hang_up, connections[-1])
            made.pop_all()
        return connections

    def events(self, connection: Connection) -> Iterator[str]:
        """Let a connection learn from its next event and return its name, until there is none."""
        from zmq.utils.monitor import recv_monitor_message  # noqa: PLC0415 - zmq is loaded when needed

        while connection.monitor in self.by_monitor and connection.monitor.poll(0):
            found = recv_monitor_message(connection.monitor)
            name = self._zmq.Event(found["event"]).name
            connection.follow(name, int(found["value"]))
            yield name

    def hang_up(self, connection: Connection, linger: int = 0) -> None:
        """Close a connection; what waits in it may take so many milliseconds to go out."""
        if connection.monitor is not None:
            self._poller.unregister(connection.monitor)
            del self.by_monitor[connection.monitor]
            connection.socket.monitor(None, 0)
            connection.monitor.close(linger=0)
        connection.socket.close(linger=linger)

    def _watch(self, socket: Any) -> Any:  # noqa: ANN401
        """Return what tells of a socket's events. It has no limit: a full queue stops libzmq's thread."""
        zmq = self._zmq
        self._made += 1
        place = f"inproc://monitor-{self._made}"
        socket.monitor(place, sum(zmq.Event[name] for name in EVENTS))
        monitor = self._context.socket(zmq.PAIR)
        monitor.setsockopt(zmq.RCVHWM, 0)
        monitor.connect(place)
        self._poller.register(monitor, zmq.POLLIN)
        return monitor


def new_socket(context: Any, kind: int, address: str, **options: int) -> Any:  # noqa: ANN401
    """Return a socket with the options of every connection, and these."""
    zmq, socket = require_zmq(), context.socket(kind)
    for name, value in {**OPTIONS, "IPV6": int(address.startswith("[")), **options}.items():
        socket.setsockopt(getattr(zmq, name), value)
    return socket
