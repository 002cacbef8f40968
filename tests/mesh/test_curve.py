"""Keys as ZeroMQ takes them: a real CURVE exchange accepts the right ones, and no others."""

from __future__ import annotations

import sys

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from zmq.utils.monitor import recv_monitor_message

from gossamer._mesh.keys import Key, from_z85, load_key, new_key, z85
from gossamer._mesh.needs import require_zmq
from gossamer.errors import GossamerError
from tests.support.waiting import LIMIT

FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
PATIENCE = int(LIMIT * 1000)


@pytest.fixture
def make(tmp_path):
    """Make a key pair of a name."""
    return lambda name: load_key(str(new_key(name, tmp_path)))


@given(st.binary(min_size=32, max_size=32))
def test_z85_and_back(raw):
    encoded = z85(raw.hex())
    assert len(encoded) == 40
    assert from_z85(encoded) == raw.hex()


def test_z85_is_that_of_its_specification():
    """The test vector of ZeroMQ's RFC 32."""
    assert z85("864fd26fb559f75b") == b"HelloWorld"
    assert from_z85(b"HelloWorld") == "864fd26fb559f75b"
    for wrong in (b"'''''", b"#####", b"Hell"):
        with pytest.raises(ValueError, match="Z85"):
            from_z85(wrong)


def test_without_pyzmq_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zmq", None)
    with pytest.raises(ValueError, match=r"^the mesh needs pyzmq: pip install 'gossamer\[mesh\]'$") as caught:
        new_key("alice", tmp_path / "keys")
    assert isinstance(caught.value, GossamerError)
    assert list(tmp_path.iterdir()) == []


def test_a_pyzmq_without_encryption_is_refused(monkeypatch):
    assert require_zmq() is zmq
    monkeypatch.setattr(zmq, "has", lambda capability: capability != "curve")
    with pytest.raises(GossamerError, match="can encrypt"):
        require_zmq()


def speak(server: Key, client: Key, believed: str) -> tuple[int, bytes | None]:
    """Let a client that believes in a public key send; return how the handshake ended and what came."""
    with zmq.Context() as context:
        context.linger = 0
        with context.socket(zmq.PULL) as pull, context.socket(zmq.PUSH) as push:
            pull.curve_server, pull.curve_secretkey = True, z85(server.secret)
            push.curve_publickey, push.curve_secretkey = z85(client.public), z85(client.secret)
            push.curve_serverkey = z85(believed)
            pull.rcvtimeo = push.sndtimeo = PATIENCE
            with pull.get_monitor_socket(FAILED | zmq.EVENT_HANDSHAKE_SUCCEEDED) as events:
                events.rcvtimeo = PATIENCE
                push.connect(f"tcp://127.0.0.1:{pull.bind_to_random_port('tcp://127.0.0.1')}")
                push.send(b"hello")
                ended = recv_monitor_message(events)["event"]
                pull.disable_monitor()
            try:
                flags = zmq.NOBLOCK if ended & FAILED else 0
                return ended, pull.recv(flags)
            except zmq.Again:
                return ended, None


def test_curve_accepts_the_keys(make):
    alice, bob = make("alice"), make("bob")
    assert speak(bob, alice, bob.public) == (zmq.EVENT_HANDSHAKE_SUCCEEDED, b"hello")


def test_curve_refuses_another_key(make):
    alice, bob, mallory = make("alice"), make("bob"), make("mallory")
    ended, came = speak(mallory, alice, bob.public)
    assert ended & FAILED
    assert came is None
    thief = Key("alice", alice.public, mallory.secret)  # alice's public key, without her secret
    ended, came = speak(bob, thief, bob.public)
    assert ended & FAILED
    assert came is None
