"""Asking members for their status: each reason for which no answer comes, with real sockets."""

from __future__ import annotations

import errno
import socket
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest

from gossamer._mesh import frames, status
from gossamer._mesh.ask import Asker
from gossamer._mesh.connections import Connection, Trouble
from gossamer._mesh.peers import Peer
from tests.support.meshes import join, made_up_keys, new_keys, peers_of
from tests.support.processes import run_processes
from tests.support.waiting import LIMIT, wait_for, wait_until

SOON = 1.0  # seconds for an answer that never comes
AGAIN, NO_DETAIL = "CONNECT_RETRIED", "HANDSHAKE_FAILED_NO_DETAIL"
MIXED = ("HANDSHAKE_FAILED_PROTOCOL", 285212674)


@contextmanager
def member(key=None, rank=0, **options):
    """Yield one of two peers that is there, and both."""
    keys = [key, replace(new_keys(1)[0], name="w1")] if key else made_up_keys(2)
    peers = peers_of(keys)
    transport = join(peers, rank, key, **options)
    try:
        yield transport, peers
    finally:
        transport.close()


def trouble(peer, key, expected):
    """Ask until the expected reason is found: a busy machine may need longer to be told."""
    with Asker([peer], key) as asker:
        wait_until(lambda: asker.ask(SOON)[0].trouble == expected)
        return asker.ask(SOON)[0].told is None


@contextmanager
def program(greeting=None):
    """Yield the address of a program that accepts connections, and says something else than a worker does."""
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as stack:
        over = threading.Event()

        def serve():
            server.settimeout(0.05)
            while not over.is_set():
                try:
                    connection = stack.enter_context(server.accept()[0])
                except TimeoutError:
                    continue
                if greeting is not None:
                    connection.sendall(greeting)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        over.set()
        thread.join()


def test_an_answer():
    (key,) = new_keys(1)
    with member(key) as (transport, peers), Asker(peers.all[:1], key) as asker:
        (found,) = asker.ask(LIMIT)
        assert found.trouble == ""
        assert found.told is not None
        assert found.told.name == "w0"
        assert found.told.run == transport.protocol.run.hex()
        assert [(m.name, m.status) for m in found.told.members] == [("w0", "waiting"), ("w1", "dead")]
        assert abs(found.ahead) < LIMIT


def test_an_answer_without_keys():
    with member() as (_, peers), Asker(peers.all[:1], None) as asker:
        assert asker.ask(LIMIT)[0].told is not None


def test_over_ipv6():
    if not socket.has_ipv6:
        pytest.skip("there is no IPv6 here")
    (key,) = new_keys(1)
    peers = peers_of([key])
    port = peers.all[0].address.rpartition(":")[2]
    peers = replace(peers, all=(replace(peers.all[0], address=f"[::1]:{port}"),))
    transport = join(peers, 0, key)
    with Asker(peers.all, key) as asker:
        assert asker.ask(LIMIT)[0].told is not None
    transport.close()


def test_nobody_listens():
    (key,) = new_keys(1)
    assert trouble(peers_of([key]).all[0], key, Trouble.REFUSED)


def test_a_firewall_drops_it():
    """Linux drops what asks for a connection while the queue of a program that accepts none is full."""
    (key,) = new_keys(1)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, ExitStack() as stack:
        place = server.getsockname()
        for _ in range(4):
            queued = stack.enter_context(socket.socket())
            queued.setblocking(False)
            assert queued.connect_ex(place) in (0, errno.EINPROGRESS)
        peer = Peer(0, "w0", f"127.0.0.1:{place[1]}", key.public)
        assert trouble(peer, key, Trouble.FILTERED)


def test_a_name_that_nobody_has():
    (key,) = new_keys(1)
    assert trouble(Peer(0, "w0", "nobody.invalid:7000", key.public), key, Trouble.UNRESOLVED)


def test_a_name_that_somebody_has(monkeypatch):
    (key,) = new_keys(1)
    with member(key) as (_, peers):
        port = int(peers.all[0].address.rpartition(":")[2])
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_: found if host == "a.example" else [])
        with Asker([replace(peers.all[0], address=f"a.example:{port}")], key) as asker:
            assert asker.ask(LIMIT)[0].told is not None


def test_another_key_than_the_peers_file_says():
    key, other = new_keys(2)
    with member(key) as (_, peers):
        assert trouble(replace(peers.all[0], key=other.public), key, Trouble.WRONG_KEY)


def test_a_key_that_is_not_admitted():
    key, stranger = new_keys(2)
    with member(key) as (transport, peers):
        assert trouble(peers.all[0], stranger, Trouble.NOT_ADMITTED)
        assert transport.sockets.turned_away[stranger.public[:16]]


def test_one_end_encrypts():
    (key,) = new_keys(1)
    with member(key) as (_, peers):
        assert trouble(peers.all[0], None, Trouble.MIXED)
    with member() as (_, peers):
        assert trouble(peers.all[0], key, Trouble.MIXED)


@pytest.mark.parametrize(
    ("greeting", "expected"),
    [(None, Trouble.HANGS), (b"SSH-2.0-OpenSSH_9.9" + b" " * 80 + b"\r\n", Trouble.FOREIGN)],
)
def test_another_program(greeting, expected):
    (key,) = new_keys(1)
    with program(greeting) as address:
        assert trouble(Peer(0, "w0", address, key.public), key, expected)


def newer(rank, n, peers, key, folder):
    """Be a member whose frames have another version."""
    for module in (frames, status):
        setattr(module, "VERSION", 2)  # noqa: B010 - as a monkeypatch does
    transport = join(peers, 0, key)
    wait_for([folder / "asked"])
    transport.close()


def test_another_version(tmp_path):
    (key,) = new_keys(1)
    peers = peers_of([key])
    said = "it has another version of gossamer (frames of version 2, here 1)"

    def asked():
        assert trouble(peers.all[0], key, said)
        (tmp_path / "asked").touch()

    asking = threading.Thread(target=asked)
    asking.start()
    assert run_processes(1, newer, peers, key, tmp_path, group=False) == [None]
    asking.join()
    assert (tmp_path / "asked").exists()


def test_a_member_that_comes_and_goes():
    """The same connections are used as long as they are good."""
    (key,) = new_keys(1)
    peers = peers_of([key])
    with Asker(peers.all, key) as asker:
        for _ in range(3):
            wait_until(lambda: asker.ask(SOON)[0].trouble == Trouble.REFUSED)
            transport = join(peers, 0, key)
            wait_until(lambda: asker.ask(SOON)[0].told)
            transport.close()


@pytest.mark.parametrize(
    ("events", "encrypted", "expected"),
    [
        ([], True, Trouble.FILTERED),
        ([(AGAIN, 183)], True, Trouble.REFUSED),
        ([("CONNECTED", -1)], True, Trouble.HANGS),
        ([("CONNECTED", -1), (NO_DETAIL, errno.EAGAIN), ("DISCONNECTED", -1)], True, Trouble.HANGS),
        ([("CONNECTED", -1), (NO_DETAIL, errno.EPIPE)], True, Trouble.WRONG_KEY),
        (
            [("CONNECTED", -1), (NO_DETAIL, errno.EPIPE), ("DISCONNECTED", -1), (AGAIN, 9)],
            True,
            Trouble.WRONG_KEY,
        ),
        ([("CONNECTED", -1), (NO_DETAIL, errno.EPIPE)], False, Trouble.MIXED),
        ([("CONNECTED", -1), MIXED, ("DISCONNECTED", -1)], True, Trouble.MIXED),
        (
            [("CONNECTED", -1), ("HANDSHAKE_FAILED_AUTH", 400), ("DISCONNECTED", -1)],
            True,
            Trouble.NOT_ADMITTED,
        ),
        ([("CONNECTED", -1), ("DISCONNECTED", -1)], True, Trouble.FOREIGN),
        ([("CONNECTED", -1), ("HANDSHAKE_SUCCEEDED", 0)], True, None),
        ([(AGAIN, 1), ("CONNECTED", -1), ("HANDSHAKE_SUCCEEDED", 0)], True, None),
        (
            [("CONNECTED", -1), ("HANDSHAKE_SUCCEEDED", 0), ("DISCONNECTED", -1), (AGAIN, 9)],
            True,
            Trouble.BROKEN,
        ),
        (
            [("CONNECTED", -1), ("HANDSHAKE_SUCCEEDED", 0), ("DISCONNECTED", -1), (AGAIN, 9), (AGAIN, 9)],
            True,
            Trouble.REFUSED,
        ),
    ],
)
def test_what_the_events_of_a_connection_mean(events, encrypted, expected):
    """As libzmq 4.3.5 tells them, written down from what the tests above make happen."""
    connection = Connection(0, encrypted)
    for event, value in events:
        connection.follow(event, value)
    assert connection.trouble == expected
