"""What listens at an address, and why it cannot be reached."""

from __future__ import annotations

import socket
import threading

import pytest
import zmq

from gossamer._mesh import mechanism
from gossamer._mesh.connections import Trouble
from gossamer._mesh.mechanism import explain, mechanism_of


@pytest.fixture
def router():
    with zmq.Context() as context, context.socket(zmq.ROUTER) as made:
        made.linger = 0
        yield made


def bound(router):
    port = router.bind_to_random_port("tcp://127.0.0.1")
    return f"127.0.0.1:{port}"


def test_one_that_does_not_encrypt(router):
    address = bound(router)
    assert mechanism_of(address) == "NULL"
    assert explain(Trouble.WRONG_KEY, address) == Trouble.MIXED
    assert explain(Trouble.REFUSED, address) == Trouble.REFUSED


def test_one_that_encrypts(router):
    router.curve_server, router.curve_secretkey = True, zmq.curve_keypair()[1]
    address = bound(router)
    assert mechanism_of(address) == "CURVE"
    assert explain(Trouble.WRONG_KEY, address) == Trouble.WRONG_KEY


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad Request\r\n" + bytes(100), b"\xff" + bytes(3)])
def test_another_program(said):
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            with server.accept()[0] as connection:
                connection.recv(100)
                connection.sendall(said)

        thread = threading.Thread(target=answer)
        thread.start()
        assert mechanism_of(f"127.0.0.1:{server.getsockname()[1]}") == ""
        thread.join()


def test_one_that_says_nothing(monkeypatch):
    monkeypatch.setattr(mechanism, "PATIENCE", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert mechanism_of(f"127.0.0.1:{server.getsockname()[1]}") == ""


def test_nobody_there():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    assert mechanism_of(address) == ""
    assert explain(Trouble.WRONG_KEY, address) == Trouble.WRONG_KEY
