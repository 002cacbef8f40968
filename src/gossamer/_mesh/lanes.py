"""The connections to a member that carry the same kind of frames: each frame takes one that has room.

Connections of one link differ in speed, and by how much changes. Dealt out in turn, frames would wait for the
slowest of them while others are idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from gossamer._mesh.connections import Connection
from gossamer._mesh.needs import require_zmq


class Lane:
    """Sends frames over several connections. Those for which none has room wait here, or are dropped."""

    def __init__(self, connections: Sequence[Connection], poller: Any, *, drops: bool) -> None:  # noqa: ANN401
        self._zmq, self._poller, self._drops = require_zmq(), poller, drops
        self.connections = tuple(connections)
        self._waiting: deque[bytes] = deque()
        self._watched = False  # whether the poller tells when a connection has room again
        self._next = 0  # the connection that is tried first

    def send(self, data: bytes) -> bool:
        """Send a frame, now or when there is room; return False if it was dropped."""
        if self._drops:
            return self._hand_over(data)
        self._waiting.append(data)
        self.move()
        return True

    def move(self) -> None:
        """Hand over what waits, as far as there is room."""
        while self._waiting and self._hand_over(self._waiting[0]):
            self._waiting.popleft()
        self._watch(bool(self._waiting))

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
