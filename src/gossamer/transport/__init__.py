"""Transports: how messages travel between real workers."""

from gossamer.transport.base import Alone, Flight, Transport, run
from gossamer.transport.distributed import TorchTransport, connect
from gossamer.transport.handshake import agree
from gossamer.transport.own_group import START_UP

__all__ = ["START_UP", "Alone", "Flight", "TorchTransport", "Transport", "agree", "connect", "run"]
