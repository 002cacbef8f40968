"""gossamer doctor for one worker of a mesh: where it listens, where others look for it, whose key it has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gossamer._mesh.keys import load_key, new_key
from gossamer._mesh.peers import Peer, Peers, write_peers
from gossamer.cli import addresses
from gossamer.cli.addresses import EVERYWHERE, check_listen, check_seen, with_ipv6
from gossamer.cli.exchange import Finding
from gossamer.cli.mesh_exchange import Place, check_place, find_place
from tests.support.meshes import peers_of

NAMES = ("alice", "bob", "carol")
ALL = EVERYWHERE[0]
HERE = {"lo": ["127.0.0.1", "::1"], "eth0": ["10.0.0.2", "2001:db8::2"]}


@pytest.mark.parametrize(
    ("listen", "peers", "level", "text"),
    [
        (ALL, ["10.0.0.2:7000"], "ok", "all interfaces: lo 127.0.0.1 ::1, eth0 10.0.0.2 2001:db8::2"),
        ("::", ["10.0.0.2:7000"], "ok", "port 7000 of [::], which is all interfaces"),
        ("10.0.0.2", ["10.0.0.2:7000"], "ok", "which is interface eth0 (10.0.0.2 2001:db8::2)"),
        ("eth0", ["10.0.0.2:7000"], "ok", "which is interface eth0"),
        ("127.0.0.1", ["127.0.0.1:7000"], "ok", "which is interface lo"),
        ("127.0.0.1", ["10.0.0.2:7000"], "problem", "only this machine can reach"),
        ("192.0.2.99", ["10.0.0.2:7000"], "problem", "no address of this machine"),
    ],
)
def test_where_it_listens(listen, peers, level, text):
    file = Peers(tuple(Peer(i, NAMES[i], where, str(i) * 64) for i, where in enumerate(peers)))
    finding = check_listen(listen, 7000, file, HERE)
    assert finding.level == level, finding
    assert text in finding.detail


@pytest.mark.parametrize(
    ("own", "other", "listen", "levels", "text"),
    [
        ("10.0.0.2:7000", "10.0.0.3:7000", ALL, ["ok"], "an address of this machine"),
        ("10.0.0.2:7001", "10.0.0.3:7000", ALL, ["problem"], "but it listens on port 7000"),
        ("10.0.0.2:7000", "10.0.0.3:7000", "10.0.0.9", ["problem"], "but it listens on 10.0.0.9 only"),
        ("10.0.0.2:7000", "9.9.9.9:7000", ALL, ["ok", "warning"], "is a private address, while bob"),
        ("10.0.0.7:7000", "10.0.0.3:7000", ALL, ["warning"], "which has 10.0.0.2"),
        ("8.8.4.4:7001", "9.9.9.9:7000", ALL, ["ok"], "a router's address"),
        ("nobody.invalid:7000", "9.9.9.9:7000", ALL, ["problem"], "does not resolve"),
    ],
)
def test_where_others_look_for_it(monkeypatch, own, other, listen, levels, text):
    here = {"lo": ["127.0.0.1"], "eth0": ["10.0.0.2"]}
    monkeypatch.setattr(addresses, "_is_here", lambda address: address in ("127.0.0.1", "10.0.0.2"))
    file = Peers((Peer(0, "alice", own, "0" * 64), Peer(1, "bob", other, "1" * 64)))
    found = check_seen(file.all[0], listen, 7000, file, here)
    assert [finding.level for finding in found] == levels, found
    assert text in found[-1].detail


def test_addresses_of_this_machine():
    assert addresses._is_here("127.0.0.1")
    assert not addresses._is_here("192.0.2.99")
    assert not addresses._is_here("nobody.invalid")
    assert set(with_ipv6({"lo": "127.0.0.1", "none": ""})) >= {"lo", "none"}
    assert with_ipv6({"lo": "127.0.0.1"})["lo"][0] == "127.0.0.1"


def test_a_key_and_a_file_that_do_not_go_together(tmp_path, monkeypatch):
    monkeypatch.setenv("GOSSAMER_KEYS", str(tmp_path / "keys"))
    keys = [load_key(str(new_key(name, tmp_path / "keys"))) for name in NAMES]
    peers = peers_of(keys)
    write_peers(tmp_path / "peers.toml", peers)
    path, listen = tmp_path / "peers.toml", peers.all[0].address
    found = find_place(listen, path, "alice", plain=False)
    assert isinstance(found, Place)
    assert found.me == peers.all[0]
    assert [finding.level for finding in check_place(found, {"lo": "127.0.0.1"})] == ["ok"] * 3
    (tmp_path / "keys" / "alice.key").rename(tmp_path / "old.key")
    new_key("alice", tmp_path / "keys")
    new_key("dave", tmp_path / "keys")
    for key, said in (
        ("alice", f"the peers file has another key for alice: {keys[0].public[:16]}..., not "),
        ("dave", "the peers file has no entry with the public key of dave: add it"),
        ("eve", "there is no key 'eve'"),
    ):
        problem = find_place(listen, path, key, plain=False)
        assert isinstance(problem, Finding)
        assert problem.detail.startswith(said)
    write_peers(path, Peers((peers.all[0], replace(peers.all[1], revoked=True), peers.all[2])))
    problem = find_place(listen, path, "bob", plain=False)
    assert isinstance(problem, Finding)
    assert problem.detail.startswith("the peers file has revoked bob")
