"""What the kernel measures of a connection: bytes that were counted, a link whose speed is known."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import contextmanager

import pytest

from gossamer._mesh import tcp_info
from gossamer.lab import Lab, Scenario
from tests.support.lab_sockets import EARLY, receive, stream
from tests.support.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has TCP_INFO")


@contextmanager
def connection():
    """Yield both ends of a connection on this machine."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as a,
        server.accept()[0] as b,
    ):
        yield a, b


def test_bytes_are_counted():
    with connection() as (near, far):
        wire = tcp_info.find(near.fileno())
        assert wire is not None
        assert wire.ends == (near.getsockname(), far.getsockname())
        for _ in range(10):
            near.sendall(bytes(1000))
            receive(far, 1000)
        found = tcp_info.read(wire)
        assert found is not None
        assert found.sent - found.resent == 10_000
        assert 0 < found.min_rtt <= found.rtt + 10 * found.rtt_variation
        far.sendall(b"still open")
        assert receive(near, 10) == b"still open"


def test_a_descriptor_that_is_gone_or_somebody_elses():
    with connection() as (near, far):
        wire = tcp_info.find(near.fileno())
        assert wire is not None
        os.dup2(far.fileno(), near.fileno())  # the descriptor has another connection now
        assert tcp_info.read(wire) is None
    assert tcp_info.find(wire.descriptor) is None
    assert tcp_info.read(wire) is None
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert tcp_info.find(server.fileno()) is None  # it listens
    near, far = socket.socketpair()
    with near, far:
        assert tcp_info.find(near.fileno()) is None  # it is not TCP
    pipe = os.pipe()
    assert tcp_info.find(pipe[0]) is None
    os.write(pipe[1], b"open")
    assert os.read(pipe[0], 4) == b"open"
    for each in pipe:
        os.close(each)


def test_elsewhere_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with connection() as (near, _):
        assert tcp_info.find(near.fileno()) is None


def test_a_link_whose_speed_is_known(machine):
    """20 ms one way and 10 Mbit/s, which no measurement can beat; and 5 % of all packets are lost."""
    with Lab(Scenario.uniform(2, "10mbit", "20ms", loss=0.05)) as lab, stream(lab, 0, 1) as (near, far):
        wire = tcp_info.find(near.fileno())
        assert wire is not None

        def resent():
            near.sendall(bytes(50_000))
            receive(far, 50_000)
            found = tcp_info.read(wire)
            assert found is not None
            assert found.min_rtt >= 0.04 - EARLY
            assert 0 < found.rate < 2 * 1.25e6  # a busy switch may hand on two packets at once
            return found.retransmits and found.resent

        wait_until(resent)
