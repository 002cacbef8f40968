"""gossamer keys: what is printed can be pasted, and the secret never is."""

from __future__ import annotations

import os
import stat
import sys
import tomllib

import pytest

from gossamer._mesh.keys import load_key, z85
from gossamer._mesh.peers import Peer, Peers, read_peers
from tests.support.processes import run_python

MAIN = "from gossamer.__main__ import main; main()"


def test_new_and_show(gossamer, tmp_path):
    code, said = gossamer("keys", "new", "alice", "--folder", "keys")
    assert code == 0, said
    assert "The key pair is in keys/alice.key" in said
    path = tmp_path / "keys" / "alice.key"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    key = load_key(str(path))
    entry = f'[[peer]] name = "alice" address = "HOST:PORT" key = "{key.public}"'
    assert entry in said
    for name in ("alice", path):
        code, shown = gossamer("keys", "show", name, "--folder", "keys")
        assert code == 0, shown
        assert entry in shown
        assert not any(form in said + shown for form in (key.secret, z85(key.secret).decode()))


def test_what_is_printed_is_an_entry_of_a_peers_file(tmp_path):
    """From a process of its own, as one would append it: the comments are TOML too."""
    folder = {"GOSSAMER_KEYS": str(tmp_path / "keys")}
    printed = run_python("-c", MAIN, "keys", "new", "alice", **folder)
    printed += run_python("-c", MAIN, "keys", "new", "bob", **folder)
    assert str(tmp_path / "keys" / "alice.key") in printed
    alice, bob = (load_key(name, tmp_path / "keys").public for name in ("alice", "bob"))
    assert [entry["key"] for entry in tomllib.loads(printed)["peer"]] == [alice, bob]
    filled = printed.replace("HOST:PORT", "192.0.2.1:7000", 1).replace("HOST:PORT", "192.0.2.2:7000", 1)
    (tmp_path / "peers.toml").write_text(filled)
    expected = (Peer(0, "alice", "192.0.2.1:7000", alice), Peer(1, "bob", "192.0.2.2:7000", bob))
    assert read_peers(tmp_path / "peers.toml") == Peers(expected)


def test_a_key_stays_as_it_is(gossamer, tmp_path):
    assert gossamer("keys", "new", "alice", "--folder", "keys")[0] == 0
    content = (tmp_path / "keys" / "alice.key").read_bytes()
    code, said = gossamer("keys", "new", "alice", "--folder", "keys")
    assert code == 1
    assert said.startswith("error: there is a key 'alice' already")
    assert (tmp_path / "keys" / "alice.key").read_bytes() == content


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["show", "nobody"],
            "error: there is no key 'nobody' in keys: make it with gossamer keys new nobody",
        ),
        (["show", "./nobody.key"], "error: there is no key file nobody.key: is the path right?"),
        (["new", "../alice"], "error: the name '../alice' cannot be used: take 1 to 64 letters"),
        (["show", ".."], "error: the name '..' cannot be used"),
    ],
)
def test_mistakes_take_one_line(gossamer, tmp_path, words, said):
    code, found = gossamer("keys", *words, "--folder", "keys")
    assert code == 1
    assert said in found
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_or_open_key_is_explained_without_its_secret(gossamer, tmp_path):
    gossamer("keys", "new", "alice", "--folder", "keys")
    path = tmp_path / "keys" / "alice.key"
    secret = load_key(str(path)).secret
    path.chmod(0o644)
    code, opened = gossamer("keys", "show", "alice", "--folder", "keys")
    assert code == 1
    assert opened.endswith("chmod 600 keys/alice.key")
    path.chmod(0o600)
    path.write_text(path.read_text().replace('secret = "', "secret = "))
    code, damaged = gossamer("keys", "show", "alice", "--folder", "keys")
    assert code == 1
    assert "keys/alice.key is damaged" in damaged
    assert secret not in opened + damaged


def test_without_pyzmq_the_command_says_what_to_install(gossamer, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "zmq", None)
    assert gossamer("keys", "new", "alice", "--folder", "keys") == (
        1,
        "error: the mesh needs pyzmq: pip install 'gossamer[mesh]'",
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--help"], ["keys", "--help"], ["keys", "new", "--help"]])
def test_help_loads_neither_zmq_nor_torch(words):
    code = (
        "import sys; from gossamer.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as end: sys.exit(end.code or bool({'zmq', 'torch'} & sys.modules.keys()))"
    )
    assert "keys" in run_python("-c", code, *words)
