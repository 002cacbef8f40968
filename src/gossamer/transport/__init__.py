"""Transports: how messages travel between real workers."""

from gossamer.transport.base import Alone, Ticket, Transport
from gossamer.transport.flight import Flight, run
from gossamer.transport.handshake import agree
from gossamer.transport.own_group import START_UP
from gossamer.transport.torch import TorchTransport, connect

__all__ = ["START_UP", "Alone", "Flight", "Ticket", "TorchTransport", "Transport", "agree", "connect", "run"]
