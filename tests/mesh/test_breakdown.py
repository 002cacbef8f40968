"""What ends a member's thread, what does not, and what its worker is told then."""

from __future__ import annotations

import errno

import pytest
import zmq

import gossamer
from gossamer._mesh.connections import Dialler
from gossamer._mesh.sockets import MOST_AT_ONCE, Sockets
from gossamer.errors import GossamerError
from tests.support.meshes import join, made_up_keys, new_keys, peers_of
from tests.support.problem import Model, advance, sgd
from tests.support.waiting import LIMIT, wait_until


def everybody_knows_everybody(*transports):
    return all(t.present() is not None and len(t.protocol.members.alive()) == 2 for t in transports)


def test_no_file_descriptor_is_left(monkeypatch):
    """A flood of connections may take them all; once some are free, it goes on."""
    keys, failed = new_keys(2), list[int]()
    peers, dial = peers_of(keys), Dialler.dial

    def fails(dialler, *args, **options):
        if len(failed) < 3:
            failed.append(1)
            raise zmq.ZMQError(errno.EMFILE)
        return dial(dialler, *args, **options)

    monkeypatch.setattr(Dialler, "dial", fails)
    a, b = (join(peers, i, key) for i, key in enumerate(keys))
    with a.sockets.changed:
        a.protocol.need(1)
    wait_until(lambda: everybody_knows_everybody(a, b))
    assert len(failed) == 3
    a.close()
    b.close()


def test_a_connection_that_libzmq_gives_up_ends_the_link(monkeypatch):
    """All connections of the link are closed then: what waits in them must not be awaited for ever.

    It happens to a member that ends while it is connected to and is back before that was noticed.
    """
    keys = made_up_keys(2)
    peers = peers_of(keys)
    a, b = (join(peers, i) for i in range(2))
    with a.sockets.changed:
        link = a.protocol.need(1)
    wait_until(lambda: link.up and any(a.sockets.lanes.of(1)))

    tick, breaks = a.protocol.tick, list[int]()

    def gives_up(now):
        if not breaks:  # in the thread that owns the sockets
            breaks.append(a.protocol.breaks[1])
            control = next(lane for lane in a.sockets.lanes.of(1) if lane is not None)
            connection = control.connections[0]
            connection.follow("HANDSHAKE_FAILED_PROTOCOL", 0)
            a.sockets._read_events(connection, now)
            breaks.append(a.protocol.breaks[1])
        tick(now)

    monkeypatch.setattr(a.protocol, "tick", gives_up)
    wait_until(lambda: len(breaks) == 2)
    assert breaks == [0, 1]
    wait_until(lambda: link.up)
    a.close()
    b.close()


def test_an_address_that_libzmq_refuses():
    keys = made_up_keys(2)
    peers = peers_of(keys)
    a = join(peers, 0)
    with a.sockets.changed:
        a.protocol.members.by_id[1] = a.protocol.members.by_id[1].__class__(1, keys[1].public, "w1", "-:1")
        a.protocol.need(1)
        a.sockets.wake()
    wait_until(lambda: "cannot connect" in a.sockets.trouble.get(1, ""))
    assert a.sockets.is_alive()
    a.close()


def test_a_thread_that_fails_ends_the_worker_too(monkeypatch, caplog):
    """A fault of our own; the port is free again at once."""
    peers = peers_of(made_up_keys(1))
    transport = join(peers, 0)
    model = Model()
    optimizer = gossamer.decentralize(
        sgd(list(model.parameters())), model, algorithm="dpsgd", transport=transport
    )
    advance(model, optimizer, 3)

    def fails(*_):
        raise RuntimeError("by the test")

    monkeypatch.setattr(transport.protocol, "tick", fails)
    wait_until(lambda: transport.sockets.failed)
    transport.sockets.join(LIMIT)
    with pytest.raises(GossamerError, match="the mesh has failed here: RuntimeError"):
        advance(model, optimizer, 1)
    assert "the mesh has failed here" in caplog.text
    optimizer.close()
    join(peers, 0).close()


def test_a_transport_that_was_closed_says_so():
    transport = join(peers_of(made_up_keys(1)), 0)
    transport.close()
    with pytest.raises(GossamerError, match="has left the mesh: make a new transport"):
        transport.wait_until(lambda _: False, LIMIT)


def test_closing_in_the_middle_of_news(monkeypatch):
    """The callback is called with the lock held, and so may a signal's handler be."""
    transport = join(peers_of(made_up_keys(1)), 0)
    with transport.sockets.changed:
        transport.close()
    transport.sockets.join(LIMIT)
    assert not transport.sockets.is_alive()


def test_no_peer_can_keep_the_thread_busy():
    """Who sends without end gets so many frames read at a time, and others their turn."""
    transport = join(peers_of(made_up_keys(1)), 0)
    transport.close()

    class Endless:
        read = 0

        def recv_multipart(self, *_, **__):
            self.read += 1
            return [zmq.Frame(bytes(32)), zmq.Frame(b"noise")]

    sockets: Sockets = transport.sockets
    sockets._router = Endless()
    sockets._read_frames(0.0)
    assert sockets._router.read == MOST_AT_ONCE


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"connections": 0}, "connections=0: a number from 1 to 64"),
        ({"connections": 1.5}, "connections=1.5: a number"),
        ({"silence": 0}, "silence=0: 2 seconds or more"),
        ({"silence": float("nan")}, "silence=nan: 2 seconds"),
        ({"deadline": -5}, "deadline=-5: a number of seconds"),
    ],
)
def test_options_that_make_no_sense(options, said):
    with pytest.raises(ValueError, match=said):
        join(peers_of(made_up_keys(1)), 0, **options)


def test_a_transport_trains_once():
    transport = join(peers_of(made_up_keys(1)), 0)
    for _ in range(2):
        model = Model()
        inner = sgd(list(model.parameters()))
        if transport.protocol.begun:
            with pytest.raises(ValueError, match="has trained already: make a new one"):
                gossamer.decentralize(inner, model, algorithm="dpsgd", transport=transport)
        else:
            advance(model, gossamer.decentralize(inner, model, algorithm="dpsgd", transport=transport), 1)
    transport.close()
