"""What Linux measures of a TCP connection all the time: round trip, throughput, what had to be sent again.

The connections belong to libzmq, which tells their file descriptors and closes them when it likes. So a
descriptor is only ever read, and only while its two ends are those that it had when it was told.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

# Parts of struct tcp_info, see linux/tcp.h; a kernel that is too old to fill them returns less than SIZE.
SIZE = 216
LIMITED = 7  # its lowest bit
UNACKED, RTT, RTT_VARIATION, RETRANSMITS, UNSENT, MIN_RTT = 24, 68, 72, 100, 144, 148  # u32, microseconds
RATE, SENT, RESENT = 160, 200, 208  # u64, bytes (a second)


@dataclass(frozen=True)
class TcpInfo:
    """One connection, as the kernel has measured it; seconds and bytes."""

    rtt: float  # the round trip, smoothed
    rtt_variation: float
    min_rtt: float  # the shortest of the last minutes
    retransmits: int  # segments that were sent again
    rate: float  # bytes a second that arrived of late
    limited: bool  # whether there was too little to send: the connection may be able to do more
    sent: int  # bytes, with those that were sent again
    resent: int
    unacked: int  # segments on their way
    unsent: int  # bytes that wait here


class Wire(NamedTuple):
    """A connection by its file descriptor, and the two ends that tell it from whatever has it later."""

    descriptor: int
    ends: tuple[Any, Any]


def find(descriptor: int) -> Wire | None:
    """Return the TCP connection that has this descriptor; None if it is gone, or this is not Linux."""
    if sys.platform != "linux" or descriptor < 0:
        return None
    try:
        with _borrowed(descriptor) as connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            return Wire(descriptor, (connection.getsockname(), connection.getpeername()))
    except OSError:
        return None


def read(wire: Wire) -> TcpInfo | None:
    """Return what was measured so far; None if the connection is gone."""
    if find(wire.descriptor) != wire:
        return None
    try:
        with _borrowed(wire.descriptor) as connection:
            found = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SIZE)
    except OSError:
        return None
    return _opened(found) if len(found) == SIZE else None


def _opened(found: bytes) -> TcpInfo:
    def short(at: int) -> int:
        return int(struct.unpack_from("=I", found, at)[0])

    def long(at: int) -> int:
        return int(struct.unpack_from("=Q", found, at)[0])

    return TcpInfo(
        rtt=short(RTT) / 1e6,
        rtt_variation=short(RTT_VARIATION) / 1e6,
        min_rtt=short(MIN_RTT) / 1e6,
        retransmits=short(RETRANSMITS),
        rate=float(long(RATE)),
        limited=bool(found[LIMITED] & 1),
        sent=long(SENT),
        resent=long(RESENT),
        unacked=short(UNACKED),
        unsent=short(UNSENT),
    )


@contextmanager
def _borrowed(descriptor: int) -> Iterator[socket.socket]:
    """Look at somebody else's socket, and never close it."""
    connection = socket.socket(fileno=descriptor)
    try:
        yield connection
    finally:
        connection.detach()
