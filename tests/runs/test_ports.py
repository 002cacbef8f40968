"""Ports that are held for workers."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest
import zmq

from gossamer.runs.processes import ports
from gossamer.runs.processes.ports import HeldPorts


def test_nobody_else_is_given_a_port_that_is_held(monkeypatch):
    monkeypatch.setattr(ports, "PORTS", ports.PORTS[:200])
    held = []
    with suppress(ValueError):  # until there are no more
        while True:
            held.append(HeldPorts(3))
    addresses = [address for each in held for address in each.addresses]
    assert len(held) > 10
    assert len(set(addresses)) == len(addresses)
    held.pop()
    assert not set(HeldPorts(3).addresses) & {address for each in held for address in each.addresses}


def test_a_worker_can_listen_on_it_again_and_again():
    held = HeldPorts(1)
    for _ in range(3):
        with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
            router.bind(f"tcp://{held.addresses[0]}")
            with pytest.raises(OSError, match="in use"):
                socket.create_server(split(held.addresses[0]))


def test_nothing_answers_on_it_before():
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(split(HeldPorts(1).addresses[0]))


def test_too_few_ports(monkeypatch):
    monkeypatch.setattr(ports, "PORTS", range(20_000, 20_002))
    with pytest.raises(ValueError, match="end other programs"):
        HeldPorts(3)


def split(address: str) -> tuple[str, int]:
    host, _, port = address.partition(":")
    return host, int(port)
