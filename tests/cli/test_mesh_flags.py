"""The flags of one worker of a mesh: what is said if they do not go together."""

from __future__ import annotations

import socket
from datetime import timedelta

import pytest

from gossamer._doors import starting
from gossamer._mesh.peers import write_peers
from gossamer.runs import RunFolder
from tests.support.meshes import made_up_keys, peers_of
from tests.support.small import FILE

MISTAKES = {
    "one worker of a mesh needs both --listen": ["--listen", "127.0.0.1:7000"],
    "leave --peers out, or --join": ["--listen", "127.0.0.1:7000", "--peers", "p", "--join", "h:1"],
    "are for one worker of a mesh": ["--key", "alice"],
    "there is no peers file": ["--listen", "127.0.0.1:7000", "--peers", "nowhere.toml"],
    "before the @ must be 64 digits": ["--listen", "127.0.0.1:7000", "--join", "abc@127.0.0.1:7001"],
    "nobody listens there": ["--listen", "127.0.0.1:7000", "--join", "127.0.0.1:9"],
    "are for --transport mesh": ["--transport", "torch", "--listen", "127.0.0.1:7000", "--peers", "p"],
}


@pytest.mark.parametrize("said", MISTAKES)
def test_mistakes(gossamer, tmp_path, said):
    code, text = gossamer("train", *MISTAKES[said], "--out", "run")
    assert code == 1
    assert said in text
    assert not (tmp_path / "run").exists()


SMALL = ["--task", FILE, "--batch-size", "4", "--gamma", "0.2", "--quiet", "--deadline", "1"]


def write_made_up_peers(folder, n):
    """Write a peers file; return where its first worker listens."""
    peers = peers_of(made_up_keys(n))
    write_peers(folder / "peers.toml", peers)
    return peers.all[0].address


@pytest.mark.parametrize("out", [[], ["--out", "some/where"], ["--out", "here"]])
def test_a_port_that_is_taken_leaves_nothing_in_the_way(gossamer, tmp_path, out):
    (tmp_path / "here").mkdir()
    address = write_made_up_peers(tmp_path, 1)
    words = ["train", "--listen", address, "--peers", "peers.toml", "--steps", "2", *SMALL, *out]
    host, port = address.split(":")
    with socket.create_server((host, int(port))):
        code, said = gossamer(*words)
    assert (code, "another program has that port" in said) == (1, True), said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "peers.toml"]
    assert not list((tmp_path / "here").iterdir())
    code, said = gossamer(*words)
    assert code == 0, said
    assert RunFolder(tmp_path / (out[1] if out else "runs/small-choco-1")).status() == "finished"


def test_who_waits_in_vain_leaves_nothing_in_the_way(gossamer, tmp_path, monkeypatch):
    monkeypatch.setattr(starting, "START_UP", timedelta(seconds=1))
    address = write_made_up_peers(tmp_path, 2)
    words = ["train", "--listen", address, "--peers", "peers.toml", *SMALL, "--out", "run"]
    for _ in range(2):
        code, said = gossamer(*words)
        assert (code, "(w1) is not there" in said) == (1, True), said
        assert [path.name for path in tmp_path.iterdir()] == ["peers.toml"]


def test_a_run_is_not_begun_in_a_folder_with_something_else(gossamer, tmp_path):
    address = write_made_up_peers(tmp_path, 1)
    words = ["train", "--listen", address, "--peers", "peers.toml", *SMALL, "--out", "."]
    code, said = gossamer(*words)
    assert (code, "is not a run" in said) == (1, True), said
    assert [path.name for path in tmp_path.iterdir()] == ["peers.toml"]
