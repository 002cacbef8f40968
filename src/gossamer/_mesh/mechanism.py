"""How a ZeroMQ socket protects its connections, as the first 64 bytes tell that it sends (ZMTP 3.1).

libzmq gives up an attempt to connect without a reason that could be trusted: if both ends see that they do
not fit together, whoever is first to close takes the other's explanation away.
"""

from __future__ import annotations

import socket

from gossamer._mesh.connections import Trouble
from gossamer._mesh.peers import parse_address

SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
VERSION = b"\x03"  # with the signature: as much as is said before the other end has to say all
MECHANISM = slice(12, 32)  # of the greeting
LENGTH = 64
PATIENCE = 2.0  # seconds


def mechanism_of(address: str) -> str:
    """Return the name of the mechanism at an address; "" if nobody answers as ZeroMQ does."""
    found = b""
    host, port = parse_address(address)
    try:
        with socket.create_connection((host, port), PATIENCE) as connection:
            connection.sendall(SIGNATURE + VERSION)
            while len(found) < LENGTH and (more := connection.recv(LENGTH - len(found))):
                found += more
    except OSError:
        return ""
    whole = len(found) == LENGTH and found[0] == SIGNATURE[0] and found[9] == SIGNATURE[9]
    return found[MECHANISM].rstrip(b"\0").decode("ascii", "replace") if whole else ""


def explain(trouble: str, address: str) -> str:
    """Return why a member with this address cannot be reached: another key, or none at all."""
    mixed = trouble == Trouble.WRONG_KEY and mechanism_of(address) == "NULL"
    return Trouble.MIXED if mixed else trouble
