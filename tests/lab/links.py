"""Sockets in a lab's namespaces, and patience with a machine that does other things too."""

from __future__ import annotations

import socket
import time
from contextlib import contextmanager

from gossamer.lab.namespaces import inside

LIMIT = 20.0  # seconds that nothing should ever take


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


def round_trip(near, far):
    """Return the least of a few round-trip times: what other processes add is not the network's."""
    times = []
    for _ in range(5):
        start = time.monotonic()
        for one, other in ((near, far), (far, near)):
            one.sendall(b".")
            other.recv(1)
        times.append(time.monotonic() - start)
    return min(times)


def within(seconds, happens):
    """Return whether something happens in time."""
    deadline = time.monotonic() + seconds
    while not happens():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
