"""The thread that drives a member's protocol with real sockets.

Every member listens on one port: a ROUTER, which only receives, and answers questions about its status. To
each neighbour it has one DEALER for signs of life, one or more for rounds and one for copies, which only
send. With keys, CURVE encrypts and authenticates every connection, and a connection is accepted for admitted
keys only.
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gossamer._mesh import status
from gossamer._mesh.connections import OPTIONS, Connection, Dialler, Stage, new_socket
from gossamer._mesh.contacts import Close, Send
from gossamer._mesh.gate import Gate
from gossamer._mesh.keys import Key, z85
from gossamer._mesh.lanes import Lanes
from gossamer._mesh.link import OTHERS, ROUNDS
from gossamer._mesh.needs import require_zmq
from gossamer._mesh.protocol import Protocol
from gossamer._mesh.roster import Roster
from gossamer.errors import GossamerError

log = logging.getLogger("gossamer")

TICK = 0.1  # seconds
BRIEF = 0.005  # seconds, while copies wait until no round is on its way
MOST_AT_ONCE = 100  # frames that are read before others get their turn
MOST_UNREAD = 32  # frames of one connection that libzmq holds; then its sender has to wait
PATIENCE = 5.0  # seconds for the answers to a goodbye, while nothing of what is under way arrives
ANSWERS = 10  # to questions about the status, in a second: nobody can slow a member down by asking
REMEDIES = {  # for a port that cannot be listened on
    errno.EADDRINUSE: "another program has that port, or this worker is running already",
    errno.EACCES: "ports below 1024 are for root only",
    errno.ENODEV: "that is no address of this machine; 0.0.0.0 stands for all that it has",
    errno.EADDRNOTAVAIL: "that is no address of this machine; 0.0.0.0 stands for all that it has",
}


@dataclass(frozen=True)
class Listening:
    """Where a member listens, and with which key; without one, nothing is encrypted."""

    address: str  # host:port
    key: Key | None
    connections: int = 1  # for rounds, per neighbour


class Sockets(threading.Thread):
    """Owns all sockets of a member. `changed` guards the protocol, and is notified of all that happens."""

    def __init__(
        self, protocol: Protocol, listening: Listening, admits: Callable[[str], bool], own: str
    ) -> None:
        super().__init__(name="gossamer-mesh", daemon=True)
        zmq = self._zmq = require_zmq()
        self.protocol, self.changed = protocol, threading.Condition()
        self.roster: Callable[[], Roster | None] = lambda: None  # what somebody who joins is told
        self._listening, self._admits = listening, admits
        self._context = zmq.Context()
        self._poller = zmq.Poller()
        queues = {"SNDHWM": ANSWERS, "RCVHWM": MOST_UNREAD}
        self._router = new_socket(self._context, zmq.ROUTER, listening.address, **queues)
        self._dialler = Dialler(self._context, self._poller, listening.key, own)
        self.lanes = Lanes(self._dialler, self._poller, listening.connections)
        self.trouble: dict[int, str] = {}  # why a member cannot be reached
        self.sent: Counter[int] = Counter()  # bytes of frames, by member
        self.received: Counter[int] = Counter()
        self.drifts: Counter[int] = Counter()  # how often one end was not what the other believed
        self._answered: deque[float] = deque(maxlen=ANSWERS)  # when questions were answered
        self._ending = self._ended = False
        self.failure: BaseException | None = None  # what has ended the thread
        self._waker, self._woken = self._context.socket(zmq.PAIR), self._context.socket(zmq.PAIR)
        self._waker.bind("inproc://wake")
        self._woken.connect("inproc://wake")
        self._gate = Gate(self._context, admits)
        for socket in (self._router, self._woken, self._gate.socket):
            self._poller.register(socket, zmq.POLLIN)
        try:
            self._listen()
        except BaseException:
            self._context.destroy(linger=0)
            raise

    def wake(self) -> None:
        """Send what the protocol has put out. Called with `changed` held, by one thread."""
        if self.protocol.out:
            self._wake()

    def close(self, patience: float = PATIENCE) -> None:
        """Say goodbye, wait a little for the answers, and close all sockets. Idempotent."""
        with self.changed:
            if self._ending:
                return
            self.protocol.leave("finished")
            self.wake()
            while (left := self._under_way()) and not self._is_quiet(patience) and self._under_way() < left:
                pass  # its last messages arrive one by one
            self._ending = True
            self._wake()
            # Not a join, which would wait for ever if whoever calls has the lock already.
            self.changed.wait_for(lambda: self._ended)

    @property
    def turned_away(self) -> Counter[str]:
        """Connections that were refused, by key."""
        return self._gate.turned_away

    @property
    def failed(self) -> bool:
        """Whether the thread has ended with an error."""
        return self.failure is not None

    def require_running(self) -> None:
        """Raise an error if nothing can be sent or received any more."""
        if self.failure is not None:
            raise GossamerError(f"the mesh has failed here: {self.failure!r}") from self.failure
        if self._ended:
            raise GossamerError("this worker has left the mesh: make a new transport with gossamer.mesh")

    def run(self) -> None:
        """Move frames until the end."""
        try:
            self._move()
        except BaseException as error:  # noqa: BLE001 - the worker's own thread raises it
            log.error("the mesh has failed here: %r", error)
            self.failure = error
        finally:
            try:
                self._close()
            finally:
                with self.changed:
                    self._ending = self._ended = True
                    self.changed.notify_all()

    def _wake(self) -> None:
        with suppress(self._zmq.Again):  # it has been told so often that it will look
            self._waker.send(b"", self._zmq.NOBLOCK)

    def _under_way(self) -> int:
        """Return how many messages the others have not taken yet, and goodbyes they have not answered."""
        links = [self.protocol.links[peer] for peer in self.protocol.parting]
        streams = [link.streams[kind] for link in links for kind in (ROUNDS, OTHERS)]
        return len(links) + sum(len(s.unclaimed) + len(s.queue) for s in streams)

    def _is_quiet(self, patience: float) -> bool:
        return self.changed.wait_for(lambda: self._ended or not self.protocol.parting, patience)

    def _move(self) -> None:
        ticked, copies_wait = time.monotonic(), False
        while True:
            events = dict(self._poller.poll(1000 * (BRIEF if copies_wait else TICK)))
            now = time.monotonic()
            with self.changed:
                ending = self._ending
                self._receive(events, now)
                if now - ticked >= TICK:
                    ticked = now
                    self.protocol.tick(now)
                copies_wait = self._put_out()
                self.changed.notify_all()
            if ending:
                return

    def _listen(self) -> None:
        zmq, listening = self._zmq, self._listening
        if listening.key is not None:
            self._router.curve_server = True
            self._router.curve_secretkey = z85(listening.key.secret)
            self._router.zap_domain = b"gossamer"
            self._router.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        try:
            self._router.bind(f"tcp://{listening.address}")
        except zmq.ZMQError as error:
            reason = REMEDIES.get(error.errno or 0, error.strerror)
            raise ValueError(f"cannot listen on {listening.address}: {reason}") from None

    def _receive(self, events: dict[Any, int], now: float) -> None:
        for socket in events:
            if socket is self._woken:
                socket.recv()
            elif socket is self._gate.socket:
                self._gate.answer()
            elif socket is self._router:
                self._read_frames(now)
            elif socket in self._dialler.by_monitor:
                self._read_events(self._dialler.by_monitor[socket], now)

    def _read_frames(self, now: float) -> None:
        for _ in range(MOST_AT_ONCE):
            try:
                identity, data = self._router.recv_multipart(self._zmq.NOBLOCK, copy=False)
            except self._zmq.Again:
                return
            except ValueError:  # not two parts
                self._gate.turned_away["parts"] += 1
                continue
            key = data.get("User-Id") if self._listening.key is not None else identity.bytes[:32].hex()
            peer = self.protocol.members.id_of(key)
            if peer is not None:
                self.received[peer] += len(data)
                self.drifts[peer] += status.tells_of_drift(data.buffer)
            # Without keys nobody is known for sure, and who joins has no name yet.
            if status.is_question(data.buffer) and (self._admits(key) or self._listening.key is None):
                self._answer(identity.bytes, data.buffer, now)
            else:
                self.protocol.heard(key, data.buffer, now)

    def _answer(self, identity: bytes, question: memoryview, now: float) -> None:
        """Tell the status to who asks, unless others have asked too often; it will ask again."""
        if len(self._answered) == ANSWERS and now - self._answered[0] < 1.0:
            return
        self._answered.append(now)
        with suppress(self._zmq.ZMQError):  # it is gone already
            self._router.send_multipart([identity, status.answer(self, question)], self._zmq.NOBLOCK)

    def _read_events(self, connection: Connection, now: float) -> None:
        peer = connection.peer
        for event in self._dialler.events(connection):
            if connection.stage == Stage.UP:
                self.trouble.pop(peer, None)
            elif connection.failure is not None:
                self.trouble[peer] = connection.failure
            if event == "DISCONNECTED":
                self.protocol.disconnected(peer, now)
        if connection.over:  # the next greeting connects anew; what waits in the others is lost
            self.protocol.disconnected(peer, now)
            self.lanes.close(peer)

    def _put_out(self) -> bool:
        """Do what the protocol wants; return whether copies wait until no round is on its way."""
        while self.protocol.out:
            action = self.protocol.out.popleft()
            if isinstance(action, Close):
                self.lanes.close(action.peer)
            else:
                self._send(action)
        return self.lanes.move()

    def _send(self, action: Send) -> None:
        try:
            lane = self.lanes.to(self.protocol.members.by_id[action.peer], action.channel)
        except self._zmq.ZMQError as error:  # no file descriptor is left, or it is no address for libzmq
            self.trouble[action.peer] = f"cannot connect: {error.strerror}"
            self.protocol.disconnected(action.peer, self.protocol.now)
            return
        if lane.send(action.data):
            self.sent[action.peer] += len(action.data)
            self.drifts[action.peer] += status.tells_of_drift(action.data)

    def _close(self) -> None:
        self.lanes.close_all()
        self._router.close(linger=OPTIONS["LINGER"])  # its last answers
        for socket in (self._woken, self._waker, self._gate.socket):
            socket.close(linger=0)
        self._context.destroy(linger=OPTIONS["LINGER"])
