"""gossamer doctor for one worker of a mesh: its place, its key, and a real exchange with the others."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from gossamer._mesh.ask import Asker
from gossamer._mesh.keys import load_key, new_key
from gossamer._mesh.members import Status
from gossamer._mesh.peers import Peers, parse_address, write_peers
from gossamer.cli import doctor, mesh_exchange
from gossamer.cli.exchange import Finding
from gossamer.cli.mesh_exchange import Place, check_peers
from tests.support.meshes import join, new_keys, peers_of
from tests.support.waiting import LIMIT, wait_until

NAMES = ("alice", "bob", "carol")


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Make keys and a peers file for three; return the keys and the peers."""
    monkeypatch.setenv("GOSSAMER_KEYS", str(tmp_path / "keys"))
    monkeypatch.setattr(mesh_exchange, "PATIENCE", LIMIT)
    keys = [load_key(str(new_key(name, tmp_path / "keys"))) for name in NAMES]
    peers = peers_of(keys)
    write_peers(tmp_path / "peers.toml", peers)
    return keys, peers


@pytest.fixture
def impatient(monkeypatch):
    """Do not wait for those that will never come."""
    monkeypatch.setattr(mesh_exchange, "HEARING", 0.0)


@pytest.fixture
def started():
    """Start members, and close them at the end."""
    members = []

    def start(*arguments, **options):
        members.append(join(*arguments, **options))
        return members[-1]

    yield start
    for each in members:
        each.sockets.close(patience=0.1)


def place(keys, peers, rank):
    return Place(peers.all[rank], peers, keys[rank], *parse_address(peers.all[rank].address))


def of(what, findings):
    return [(finding.level, finding.detail) for finding in findings if finding.what == what]


@pytest.mark.parametrize("secret", ["encrypted, ", ""])
def test_two_doctors_find_that_both_ways_are_open(files, secret):
    keys, peers = files
    places = [place(keys if secret else [None] * 3, peers, i) for i in range(2)]
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(check_peers, places[i], NAMES[1 - i], LIMIT) for i in range(2)]
        for i, found in enumerate(each.result() for each in both):
            ((level, text),) = of("peer", found)
            assert level == "ok", found
            assert text.startswith(f"{NAMES[1 - i]} at {peers.all[1 - i].address} answers, {secret}in ")
            assert text.endswith("(gossamer doctor, round 0), and reaches this port")
            assert {finding.what for finding in found} == {"port", "peer"}


def test_a_doctor_finds_that_the_way_back_is_closed(files, impatient):
    """The other one answers, and its own questions do not arrive."""
    keys, peers = files
    bob = mesh_exchange._listen(place(keys, peers, 1))
    (finding,) = [f for f in check_peers(place(keys, peers, 0), "bob") if f.what == "peer"]
    bob.close()
    port = parse_address(peers.all[0].address)[1]
    assert finding.level == "problem"
    assert finding.detail.endswith(f"but nothing of its own has reached port {port} here")
    assert finding.remedy == f"open TCP port {port} of this machine: firewall, cloud settings, router"


def test_a_worker_that_is_running_is_not_disturbed(files, started):
    keys, peers = files
    alice, bob = (started(peers, i, keys[i]) for i in range(2))
    with alice.sockets.changed:
        alice.protocol.need(1)
    assert alice.wait_until(lambda p: p.links[1].up, LIMIT)
    epoch = alice.protocol.links[1].epoch
    found = check_peers(place(keys, peers, 0))
    assert of("port", found) == [
        ("ok", "a worker is running here with this key, in round 0; its links: bob up")
    ]
    levels = [level for level, _ in of("peer", found)]
    assert levels == ["ok", "problem"]
    assert "carol" in of("peer", found)[1][1]
    assert alice.protocol.links[1].epoch == bob.protocol.links[0].epoch == epoch


def test_the_doctor_is_not_taken_for_a_worker(files, started):
    """A member that looks for this worker is heard, and goes on without it."""
    keys, peers = files
    bob = started(peers, 1, keys[1])
    with bob.sockets.changed:
        bob.protocol.need(0)
    found = check_peers(place(keys, peers, 0), "bob", LIMIT)
    assert of("peer", found)[0][1].endswith("and reaches this port")
    assert not bob.protocol.links[0].up
    assert bob.protocol.members.by_id[0].status == Status.DEAD
    assert bob.sockets.received[0] > 0  # the doctor's questions, and nothing else
    assert bob.protocol.refused == {}


def test_a_worker_that_does_not_come_by(files, started, impatient):
    keys, peers = files
    started(peers, 1, keys[1])
    (finding,) = [f for f in check_peers(place(keys, peers, 0), "bob") if f.what == "peer"]
    assert finding.level == "warning"
    assert "but nothing of its own has reached port" in finding.detail
    assert "on both machines at once: gossamer doctor" in finding.remedy


def test_another_program_has_the_port(files, monkeypatch):
    keys, peers = files
    monkeypatch.setattr(mesh_exchange, "PATIENCE", 1.0)  # it will never answer
    with socket.create_server(parse_address(peers.all[0].address)):
        ((level, text),) = of("port", check_peers(place(keys, peers, 0), "bob"))
    assert level == "problem"
    assert text.endswith(": another program has that port, or this worker is running already")


def test_why_a_peer_does_not_answer(files, started, impatient):
    keys, peers = files
    (stranger,) = new_keys(1)
    (finding,) = [f for f in check_peers(place(keys, peers, 0), "bob") if f.what == "peer"]
    assert finding.detail.endswith("nobody listens there, or a firewall is in between (Connection refused)")
    assert "start its worker" in finding.remedy
    strict = Peers((replace(peers.all[0], key=stranger.public), *peers.all[1:]))
    started(strict, 1, keys[1])
    (finding,) = [f for f in check_peers(place(keys, peers, 0), "bob") if f.what == "peer"]
    assert finding.detail.endswith("it does not admit this worker's key")
    assert keys[0].public in finding.remedy
    wrong = Peers((*peers.all[:1], replace(peers.all[1], key=stranger.public), peers.all[2]))
    (finding,) = [f for f in check_peers(place(keys, wrong, 0), "bob") if f.what == "peer"]
    assert finding.detail.endswith("it has another key than the peers file says")
    assert "gossamer keys show bob" in finding.remedy


def test_another_run(files, started, impatient):
    keys, peers = files
    started(peers, 0, keys[0], run="one")
    started(peers, 1, keys[1], run="two")
    found = check_peers(place(keys, peers, 0), "bob")
    assert of("peer", found)[0][0] == "ok"
    ((level, text),) = of("run", found)
    assert level == "problem"
    assert text.startswith("bob is in another run than alice")


def test_a_clock_that_is_wrong(files, started, monkeypatch):
    keys, peers = files
    started(peers, 0, keys[0])
    started(peers, 1, keys[1])
    ask = Asker.ask
    later = lambda asker, patience: [replace(a, ahead=600.0) for a in ask(asker, patience)]  # noqa: E731
    monkeypatch.setattr(Asker, "ask", later)
    ((level, text), *_) = of("clock", check_peers(place(keys, peers, 0), "bob"))
    assert level == "warning"
    assert "10 min ahead" in text


def test_strangers_and_twins(files, started):
    """Somebody whose key is not in the file knocks, and a worker with this key runs somewhere else."""
    keys, peers = files
    (stranger,) = new_keys(1)
    elsewhere = Peers((replace(peers.all[0], address=peers.all[2].address), *peers.all[1:]))
    twin, bob = started(elsewhere, 0, keys[0]), started(elsewhere, 1, keys[1])
    with bob.sockets.changed:
        bob.protocol.need(0)
    assert bob.wait_until(lambda p: p.links[0].up, LIMIT)
    with ThreadPoolExecutor() as pool, Asker(peers.all[:1], stranger) as knocking:
        doctor = pool.submit(check_peers, place(keys, peers, 0), "bob", LIMIT)
        wait_until(lambda: knocking.ask(1.0)[0].trouble == "it does not admit this worker's key")
        with Asker(peers.all[:1], keys[1]) as calling:  # with this the doctor has heard of bob, and ends
            assert calling.ask(LIMIT)[0].told is not None
        found = doctor.result()
    assert of("key", found) == [("warning", "bob can reach a worker with this key, and it is not here")]
    assert stranger.public[:16] in of("strangers", found)[0][1]
    assert twin.protocol.links


def test_from_the_command_line(gossamer, files, started, monkeypatch):
    keys, peers = files
    for name, finding in (("check_data", []), ("check_exchange", Finding("ok", "exchange", "met"))):
        monkeypatch.setattr(doctor, name, lambda *_, finding=finding: finding)
    started(peers, 0, keys[0])
    started(peers, 1, keys[1])
    words = ("doctor", "--listen", peers.all[0].address, "--peers", "peers.toml", "--key", "alice", "--json")
    code, said = gossamer(*words, "--peer", "bob")
    assert code == 0, said
    found = {finding["what"]: finding for finding in json.loads(said)["findings"]}
    assert found["key"]["detail"].startswith("this worker is alice, number 0 of the peers file; key ")
    assert found["peer"]["detail"].startswith("bob at")
    code, said = gossamer(*words)  # carol is not there
    assert code == 1
    for wrong, remedy in (
        (("--listen", "127.0.0.1:7000"), "a worker of a mesh needs both --listen HOST:PORT and --peers FILE"),
        (
            ("--key", "alice"),
            "--key, --peer, --wait and --plain are for a mesh: give --listen and --peers, too",
        ),
        ((*words[1:], "--peer", "dave"), "unknown peer 'dave'"),
    ):
        code, said = gossamer("doctor", *wrong)
        assert code == 1
        assert remedy in said
