"""Whom libzmq lets in: it asks about every connection, before anything of it is read (ZAP 1.0)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from gossamer._mesh.needs import require_zmq

PLACE = "inproc://zeromq.zap.01"  # where libzmq asks
MOST_COUNTED = 100  # keys whose connections were turned away; all others are counted together


class Gate:
    """Answers by the keys that are admitted, and counts who was turned away."""

    def __init__(self, context: Any, admits: Callable[[str], bool]) -> None:  # noqa: ANN401
        self.socket = context.socket(require_zmq().REP)
        self.socket.bind(PLACE)
        self.turned_away: Counter[str] = Counter()  # by the short form of the key
        self._admits = admits

    def answer(self) -> None:
        """Answer the question that has come."""
        version, request, _, _, _, mechanism, *credentials = self.socket.recv_multipart()
        key = credentials[0].hex() if mechanism == b"CURVE" and credentials else ""
        admitted = version == b"1.0" and self._admits(key)
        if not admitted:
            name = key[:16] or "no key"
            crowded = name not in self.turned_away and len(self.turned_away) >= MOST_COUNTED
            self.turned_away["other keys" if crowded else name] += 1
        answer = (b"200", b"OK", key.encode()) if admitted else (b"400", b"not admitted", b"")
        self.socket.send_multipart([b"1.0", request, *answer, b""])
