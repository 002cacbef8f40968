"""Ports of this machine for workers that are about to start, or to come back."""

from __future__ import annotations

import random
import socket
import sys
import weakref
from contextlib import ExitStack

# The kernel gives higher ones to connections, and would do so while a worker is away.
PORTS = range(20_000, 32_000)


class HeldPorts:
    """So many free ports of this machine, in a random order; nobody else gets them while this exists.

    A port is held by a socket that is bound and never listens. Who looks for a free port finds it taken;
    a worker can listen on it, since it shares its address as servers do.
    """

    def __init__(self, n: int) -> None:
        self._held = ExitStack()
        weakref.finalize(self, self._held.close)
        self.addresses: list[str] = []
        for port in random.sample(PORTS, len(PORTS)):
            if len(self.addresses) < n and self._hold(port):
                self.addresses.append(f"127.0.0.1:{port}")
        if len(self.addresses) < n:
            raise ValueError(f"{n} workers need a port each, and there are not so many: end other programs")

    def _hold(self, port: int) -> bool:
        with ExitStack() as opened:
            holder = opened.enter_context(socket.socket())
            try:
                holder.bind(("127.0.0.1", port))
            except OSError:  # somebody has it
                return False
            # Not before it is bound: it would share the port with whoever has it.
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if sys.platform == "linux":  # elsewhere two sockets do not share an address
                self._held.push(opened.pop_all())
        return True
