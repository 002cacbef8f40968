"""gossamer status: a table for people, JSON for programs, and a look every second."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager
from dataclasses import replace
from subprocess import PIPE, Popen

import pytest

from gossamer._mesh.keys import load_key, new_key
from gossamer._mesh.peers import Peer, Peers, write_peers
from gossamer.cli.remarks import remarks
from tests.support.meshes import join, peers_of
from tests.support.processes import run_python
from tests.support.waiting import LIMIT, wait_until

NAMES = ("alice", "bob", "carol")
MAIN = "from gossamer.__main__ import main; main()"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Make keys and a peers file for three; return the keys and the peers."""
    monkeypatch.setenv("GOSSAMER_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("gossamer.cli.status.PATIENCE", LIMIT)
    keys = [load_key(str(new_key(name, tmp_path / "keys"))) for name in NAMES]
    peers = peers_of(keys)
    write_peers(tmp_path / "peers.toml", peers)
    return keys, peers


@contextmanager
def members(keys, peers, *ranks, **options):
    """Let some of them be there, in touch with each other."""
    there = {i: join(peers, i, keys[i], **options) for i in ranks}
    try:
        for i, transport in there.items():
            with transport.sockets.changed:
                for j in there.keys() - {i}:
                    transport.protocol.need(j)
        assert all(m.wait_until(lambda p: all(e.up for e in p.links.values()), LIMIT) for m in there.values())
        yield there
    finally:
        for transport in there.values():
            transport.sockets.close(patience=0.1)


def asked(gossamer, *words):
    code, said = gossamer("status", "--peers", "peers.toml", "--json", *words)
    return code, json.loads(said)


def test_who_is_there(gossamer, files):
    with members(*files, 0, 1):
        code, said = gossamer("status", "--peers", "peers.toml", "--key", "bob")
        assert code == 0, said
        assert "alice connected 0 2 alive; dead: carol 0" in said
        assert "carol nobody listens there, or a firewall is in between; others say: dead" in said
        assert "alice > bob idle" in said
        code, found = asked(gossamer, "--key", "bob")
    assert code == 0
    assert [m["name"] for m in found["members"]] == list(NAMES)
    assert [m["answered"] for m in found["members"]] == [True, True, False]
    alice = found["members"][0]["status"]
    assert alice["doing"] == "connected"
    assert [link["peer"] for link in alice["links"]] == ["bob"]
    assert found["members"][2]["said_to_be"] == "dead"
    assert found["remarks"] == []


def test_nobody_is_there(gossamer, files):
    code, found = asked(gossamer, "--key", "alice")
    assert code == 1
    assert not any(m["answered"] or m["said_to_be"] for m in found["members"])
    assert gossamer("status", "--peers", "peers.toml", "--key", "alice")[0] == 1


def test_without_keys(gossamer, files):
    _, peers = files
    with members([None, None, None], peers, 0):
        assert asked(gossamer)[1]["members"][0]["answered"]
        found = asked(gossamer, "--key", "alice")[1]
        assert found["members"][0]["trouble"] == "one end encrypts and the other does not"


def test_two_runs(gossamer, files):
    with members(*files, 0, run="one"), members(*files, 1, 2, run="two"):
        found = asked(gossamer, "--key", "carol")[1]
        runs = [m["status"]["run"] for m in found["members"]]
        assert runs[0] != runs[1] == runs[2]
        assert [(r["what"], r["member"]) for r in found["remarks"]] == [("run", "alice")]
        assert (
            "alice is in another run than bob, carol"
            in gossamer("status", "--peers", "peers.toml", "--key", "carol")[1]
        )


def test_another_peers_file(gossamer, files, tmp_path):
    keys, peers = files
    swapped = Peers(tuple(replace(p, id=i) for i, p in enumerate((peers.all[0], *peers.all[:0:-1]))))
    with members(keys, swapped, 0):
        found = asked(gossamer, "--key", "bob")[1]
    assert [(r["what"], r["member"]) for r in found["remarks"]] == [("peers", "alice")]


def test_other_settings_versions_and_clocks(files):
    from gossamer._mesh.ask import Asker

    keys, peers = files
    with members(keys, peers, 0, 1, 2) as there:
        with there[2].sockets.changed:
            there[2].protocol.settings = {"lr": "1"}
        for i in (0, 1):
            with there[i].sockets.changed:
                there[i].protocol.settings = {"lr": "2"}
        with Asker(peers.all, keys[0]) as asker:
            answers = asker.ask(LIMIT)
    assert [(r.what, r.text) for r in remarks(answers, peers)] == [
        ("settings", "carol trains with other settings than alice, bob")
    ]
    first = answers[0]
    assert first.told is not None
    old = replace(first, told=replace(first.told, version="0.0.1"))
    assert [r.what for r in remarks([old], peers)] == ["version"]
    for ahead in (-59.0, 59.0):
        assert remarks([replace(first, ahead=ahead)], peers) == []
    for ahead, said in ((300.0, "5 min ahead of this one"), (-7200.0, "2 h behind this one")):
        (found,) = remarks([replace(first, ahead=ahead)], peers)
        assert found.text == f"the clock of alice is {said}: that matters for logs only, not for training"


def test_who_was_revoked_is_not_asked(gossamer, files, tmp_path):
    _, peers = files
    write_peers(tmp_path / "peers.toml", Peers((*peers.all[:2], replace(peers.all[2], revoked=True))))
    found = asked(gossamer, "--key", "alice")[1]
    assert [m["name"] for m in found["members"]] == ["alice", "bob"]
    code, said = gossamer("status", "--peers", "peers.toml", "--key", "carol")
    assert code == 1
    assert said == "error: the peers file does not admit the key carol: take one that it does"


def test_a_mesh_that_others_can_reach_needs_a_key(gossamer, files, tmp_path):
    far = Peer(3, "dave", "192.0.2.77:7000", "d" * 64)
    write_peers(tmp_path / "peers.toml", Peers((*files[1].all, far)))
    code, said = gossamer("status", "--peers", "peers.toml")
    assert code == 1
    assert said == "error: with which key? --key NAME, of any worker in the peers file; or --plain"


def test_watching(files, tmp_path):
    """From a process of its own: a member goes and returns while it looks on, and Ctrl-C ends it."""
    keys, peers = files
    words = [
        sys.executable,
        "-c",
        MAIN,
        "status",
        "--peers",
        "peers.toml",
        "--key",
        "alice",
        "--watch",
        "--json",
    ]
    with (
        members(keys, peers, 0),
        Popen(words, cwd=tmp_path, stdout=PIPE, text=True, env=os.environ) as watching,
    ):
        assert watching.stdout is not None

        def seen():
            assert watching.stdout is not None
            return [m["answered"] for m in json.loads(watching.stdout.readline())["members"]]

        wait_until(lambda: seen() == [True, False, False])
        with members(keys, peers, 1):
            wait_until(lambda: seen() == [True, True, False])
        wait_until(lambda: seen() == [True, False, False])
        watching.send_signal(signal.SIGINT)
        assert watching.wait(LIMIT) == 0


@pytest.mark.parametrize("words", [["status", "--help"], ["doctor", "--help"]])
def test_help_loads_neither_zmq_nor_torch(words):
    code = (
        "import sys; from gossamer.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as end: sys.exit(end.code or bool({'zmq', 'torch'} & sys.modules.keys()))"
    )
    assert "--peers" in run_python("-c", code, *words)


def test_asking_loads_no_torch(files, tmp_path):
    """It may be asked every few seconds, on small machines."""
    code = (
        "import sys; from gossamer.__main__ import main\n"
        "try: main()\n"
        "except SystemExit as end: sys.exit(10 * ('torch' in sys.modules) + 1 - end.code)"
    )
    words = ("status", "--peers", str(tmp_path / "peers.toml"), "--key", "alice")
    assert "nobody listens" in run_python("-c", code, *words)
