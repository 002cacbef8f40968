"""Sockets in a lab's namespaces, and patience with a machine that does other things too.

A link is never faster than it was made. How much slower it seems depends on what else the machine does, so
tests repeat a measurement until one was not disturbed.
"""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager

from gossamer.lab.namespaces import inside
from tests.support.waiting import LIMIT, within

EARLY = 0.001  # seconds: the switch rounds


@contextmanager
def stream(lab, i, j):
    """Yield both ends of a TCP connection from i to j."""
    with inside(lab.namespace(j), lambda: socket.create_server((lab.address(j), 0))) as server:
        there = server.getsockname()
        near = inside(lab.namespace(i), lambda: socket.create_connection(there, LIMIT))
        with near, server.accept()[0] as far:
            for end in (near, far):
                end.settimeout(LIMIT)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield near, far


@contextmanager
def datagrams(lab, i, j):
    """Yield a UDP socket of i that sends to j, and one of j that receives."""
    make = lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # noqa: E731
    with inside(lab.namespace(i), make) as near, inside(lab.namespace(j), make) as far:
        far.bind((lab.address(j), 0))
        far.settimeout(LIMIT)
        near.connect(far.getsockname())
        yield near, far


def receive(end, n):
    """Return exactly n bytes."""
    data = bytearray()
    while len(data) < n:
        data += end.recv(n - len(data))
    return bytes(data)


def trip(near, far):
    """Return how long a byte takes to get there."""
    start = time.monotonic()
    near.sendall(b".")
    far.recv(1)
    return time.monotonic() - start


def takes(seconds, near, far, *, back=True, slack=0.02):
    """Return whether a trip, or one there and back, takes so long: never less, and once not much more."""

    def well():
        took = trip(near, far) + (trip(far, near) if back else 0)
        assert took >= seconds - EARLY
        return took < seconds + slack

    return within(LIMIT, well)
