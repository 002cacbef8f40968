"""Transports: how messages travel between real workers."""

from gossamer.transport.base import Alone, Flight, Transport, run
from gossamer.transport.distributed import START_UP, TorchTransport, connect
from gossamer.transport.handshake import agree

__all__ = ["START_UP", "Alone", "Flight", "TorchTransport", "Transport", "agree", "connect", "run"]
