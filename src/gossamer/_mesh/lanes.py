"""The connections to each member: some carry rounds, others signs of life, or copies of models.

Connections of one link differ in speed, and by how much changes. Dealt out in turn, frames would wait for the
slowest of them while others are idle: each frame takes a connection that has room.

Copies are for newcomers, and large. Beside rounds, TCP would give them as much of the line as those; so they
leave while no message of a round is on its way, piece by piece.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from gossamer._mesh.connections import OPTIONS, Connection, Dialler
from gossamer._mesh.contacts import Channel
from gossamer._mesh.members import Member
from gossamer._mesh.needs import require_zmq
from gossamer._mesh.tcp_info import TcpInfo

MOST_WAITING = 64  # greetings and signs of life that wait for a connection
MOST_QUEUED = 4  # pieces of messages that wait in one: others can then take one that is faster
LONGEST_PAUSE = 0.25  # seconds between two pieces of copies, however busy the line is


class Lane:
    """Sends frames over several connections. Those for which none has room wait here, or are dropped."""

    def __init__(self, connections: Sequence[Connection], poller: Any, channel: Channel) -> None:  # noqa: ANN401
        self._zmq, self._poller, self.channel = require_zmq(), poller, channel
        self.connections = tuple(connections)
        self._waiting: deque[bytes] = deque()
        self._watched = False  # whether the poller tells when a connection has room again
        self._next = 0  # the connection that is tried first
        self._moved = 0.0  # when the last frame was handed over

    @property
    def yields(self) -> bool:
        """Whether what waits here gives way to rounds."""
        return self.channel == Channel.COPIES and bool(self._waiting)

    def send(self, data: bytes) -> bool:
        """Send a frame, now or when there is room; return False if it was dropped."""
        if self.channel == Channel.CONTROL:
            return self._hand_over(data)
        self._waiting.append(data)
        if self.channel == Channel.DATA:
            self.move()
        return True

    def move(self) -> None:
        """Hand over what waits, as far as there is room."""
        while self._waiting and self._hand_over(self._waiting[0]):
            self._waiting.popleft()
        self._watch(bool(self._waiting))

    def move_one(self, now: float, *, free: bool) -> None:
        """Hand over one frame, if the line is free of others and the last one has left, or long ago."""
        left = free and not any(found.unsent for found in self.measured())
        if (left or now - self._moved > LONGEST_PAUSE) and self._hand_over(self._waiting[0]):
            self._waiting.popleft()
            self._moved = now

    def measured(self) -> list[TcpInfo]:
        """Return what the kernel has measured of each connection."""
        return [found for each in self.connections if (found := each.measured())]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way, as far as the kernel tells."""
        return not self._waiting and not any(found.unsent or found.unacked for found in self.measured())

    def close(self) -> None:
        """Drop what waits."""
        self._waiting.clear()
        self._watch(False)

    def _watch(self, watched: bool) -> None:
        if watched == self._watched:
            return
        self._watched = watched
        for connection in self.connections:
            if watched:
                self._poller.register(connection.socket, self._zmq.POLLOUT)
            else:
                self._poller.unregister(connection.socket)

    def _hand_over(self, data: bytes) -> bool:
        """Give a frame to the next connection that has room; return whether there was one."""
        for _ in self.connections:
            self._next = (self._next + 1) % len(self.connections)
            try:
                self.connections[self._next].socket.send(data, self._zmq.NOBLOCK, copy=False)
            except self._zmq.Again:
                continue
            return True
        return False


class Lanes:
    """All connections to all members, made when they are needed."""

    def __init__(self, dialler: Dialler, poller: Any, connections: int) -> None:  # noqa: ANN401
        self._dialler, self._poller, self._count = dialler, poller, connections
        self._lanes: dict[tuple[int, Channel], Lane] = {}

    def of(self, peer: int) -> Iterator[Lane | None]:
        """Return those to one member, by channel."""
        return (self._lanes.get((peer, channel)) for channel in Channel)

    def to(self, member: Member, channel: Channel) -> Lane:
        """Return what carries such frames to a member; raises libzmq's error if it cannot connect."""
        if (member.id, channel) not in self._lanes:
            count = self._count if channel == Channel.DATA else 1
            # Greetings are dropped while nobody is there, and repeated; all else is sent after the answer.
            most = {
                Channel.CONTROL: MOST_WAITING,
                Channel.DATA: max(1, MOST_QUEUED // count),
                Channel.COPIES: 1,
            }
            made = self._dialler.dial_all(count, member.id, member.address, member.key, SNDHWM=most[channel])
            self._lanes[member.id, channel] = Lane(made, self._poller, channel)
        return self._lanes[member.id, channel]

    def move(self) -> bool:
        """Hand over what waits, copies last; return whether some of them give way to rounds."""
        shy = [lane for lane in self._lanes.values() if lane.yields]
        rounds = [lane for lane in self._lanes.values() if lane.channel == Channel.DATA]
        for lane in rounds:
            lane.move()
        free = bool(shy) and all(lane.is_idle for lane in rounds)
        for lane in shy:
            lane.move_one(time.monotonic(), free=free)
        return any(lane.yields for lane in shy)

    def close(self, peer: int) -> None:
        """Close all connections to a member, and drop what waits; its last signs may still leave."""
        for channel in Channel:
            if (lane := self._lanes.pop((peer, channel), None)) is not None:
                lane.close()
                for connection in lane.connections:
                    linger = OPTIONS["LINGER"] if channel == Channel.CONTROL else 0
                    self._dialler.hang_up(connection, linger)

    def close_all(self) -> None:
        """Close all connections."""
        for peer in {peer for peer, _ in self._lanes}:
            self.close(peer)
