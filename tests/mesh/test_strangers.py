"""Who has no key, a wrong one or bad manners: nothing of it gets in, and training has the same bits."""

from __future__ import annotations

import random
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
import zmq
from zmq.utils.monitor import recv_monitor_message

import gossamer
from gossamer import topology
from gossamer._doors.mesh import _run_id
from gossamer._mesh import greetings
from gossamer._mesh.frames import Frame, Kind, encode
from gossamer._mesh.greetings import Hello
from gossamer._mesh.keys import Key, z85
from gossamer._mesh.members import id_of_stranger
from gossamer._mesh.peers import Peer, Peers, parse_address
from gossamer.algorithms import Choco
from gossamer.compress import TopK
from tests.support.members import CHOCO, Mesh, Place, Report, Trainer
from tests.support.meshes import new_keys, peers_of
from tests.support.problem import simulated
from tests.support.waiting import LIMIT, wait_until

N, INTRUDER = 3, 3
BEFORE, DURING, ROUNDS = 10, 40, 50
FLOOD, SCANS, SLOW = 200, 20, 20  # connections at once
ENDS = (
    "HANDSHAKE_SUCCEEDED",
    "HANDSHAKE_FAILED_NO_DETAIL",
    "HANDSHAKE_FAILED_PROTOCOL",
    "HANDSHAKE_FAILED_AUTH",
)


@dataclass(frozen=True)
class Door:
    """A worker's port, as somebody comes to it."""

    peer: Peer
    server: str  # the public key that the worker should have
    client: Key | None  # None: without encryption
    run: bytes


def knock(doors: list[Door]) -> Counter[str]:
    """Come to all doors at once with a greeting that a member would take; return how it went."""
    with zmq.Context() as context, ExitStack() as stack:
        context.linger = 0
        monitors = []
        for door in doors:
            dealer = stack.enter_context(context.socket(zmq.DEALER))
            if door.client is None:  # as workers do that do not encrypt
                dealer.identity = bytes.fromhex(door.peer.key) + bytes(8)
            else:
                dealer.curve_serverkey = z85(door.server)
                dealer.curve_publickey, dealer.curve_secretkey = map(
                    z85, (door.client.public, door.client.secret)
                )
            events = dealer.get_monitor_socket(sum(zmq.Event[name] for name in ENDS))
            monitors.append(stack.enter_context(events))
            stack.callback(dealer.disable_monitor)
            dealer.connect(f"tcp://{door.peer.address}")
            dealer.send(greeting(door))
        return Counter(outcome(monitor) for monitor in monitors)


def outcome(monitor: zmq.Socket) -> str:
    monitor.rcvtimeo = int(LIMIT * 1000)
    return str(zmq.Event(recv_monitor_message(monitor)["event"]).name)


def greeting(door: Door) -> bytes:
    key = door.client.public if door.client else door.peer.key
    fact = [key, "mallory", "127.0.0.1:9", 1 << 40, 0, id_of_stranger(key)]
    hello = Hello(fact, 1, 0, True, "")
    return encode(door.run, Frame(Kind.HELLO, payload=greetings.write(hello)))


def doors(place: Place, client: Key | None, server: str = "") -> list[Door]:
    run = _run_id("", place.peers)
    return [Door(peer, server or peer.key, client, run) for peer in place.peers.all[:N]]


def stranger(place: Place, done: Counter[str]) -> None:
    done.update(knock(doors(place, place.keys[INTRUDER])))


def believes_in_another_server(place: Place, done: Counter[str]) -> None:
    done.update(knock(doors(place, place.keys[0], new_keys(1)[0].public)))


def does_not_encrypt(place: Place, done: Counter[str]) -> None:
    done.update(knock(doors(place, None)))


def floods(place: Place, done: Counter[str]) -> None:
    run, first = _run_id("", place.peers), place.peers.all[0]
    done.update(knock([Door(first, first.key, key, run) for key in new_keys(FLOOD)]))


def is_of_another_run(place: Place, done: Counter[str]) -> None:
    """Come with the key of worker 2, which has begun another run on another port."""
    elsewhere = peers_of(place.keys).all[2].address
    transport = gossamer.mesh(elsewhere, place.peers, place.keys[2], run="other")
    with transport.sockets.changed:
        for peer in (0, 1):
            transport.protocol.need(peer)
            done["greetings"] += 1
        transport.sockets.wake()
    place.mark("attacks")
    wait_until(lambda: place.told("enough"))
    assert not any(link.up for link in transport.protocol.links.values())
    transport.close()


def connected(place: Place, count: int, stack: ExitStack) -> list[socket.socket]:
    """Connect to every worker's port so many times."""
    addresses = [parse_address(peer.address) for peer in place.peers.all[:N]]
    return [
        stack.enter_context(socket.create_connection(address, timeout=LIMIT))
        for address in addresses
        for _ in range(count)
    ]


def has_hung_up(link: socket.socket) -> bool:
    """Read what has come; return whether the other end has closed the connection."""
    try:
        while link.recv(4096):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def say(links: list[socket.socket], text: bytes) -> None:
    for link in links:
        link.setblocking(False)
        with suppress(OSError):  # it is closed already
            link.send(text)


def all_have_hung_up(links: list[socket.socket]) -> bool:
    return all(has_hung_up(link) for link in links)


def scans_ports(place: Place, done: Counter[str]) -> None:
    """Connect and say nothing, or something else than ZeroMQ until the worker hangs up."""
    for text in (b"", b"GET / HTTP/1.1\r\nHost: worker\r\n\r\n", random.Random(0).randbytes(4096)):
        with ExitStack() as stack:
            links = connected(place, SCANS, stack)
            say(links, text)
            if text:
                wait_until(partial(all_have_hung_up, links))
            done["connections"] += len(links)


def is_slow(place: Place, done: Counter[str]) -> None:
    """Begin as ZeroMQ does, a byte now and then and never to the end, until the worker hangs up."""
    beginning = b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE" + bytes(40)
    said = 0
    with ExitStack() as stack:
        links = connected(place, SLOW, stack)
        while not all_have_hung_up(links):
            say(links, beginning[said : said + 1])
            said += 1
            place.mark("attacks")
            time.sleep(0.1)
        done["connections"] += len(links)


Attack = Callable[[Place, Counter[str]], None]


def attacks(place: Place, attack: Attack) -> Counter[str]:
    """Attack again and again until the workers have trained; return what was done."""
    done: Counter[str] = Counter()
    while not place.told("enough"):
        attack(place, done)
        place.mark("attacks")
    return done


def trains(place: Place, felt: Callable[[Trainer], bool]) -> Report:
    worker = Trainer(place, **CHOCO)
    worker.train(to=BEFORE)
    place.mark("has begun")
    wait_until(lambda: place.told("attacked"))
    wait_until(lambda: felt(worker))
    worker.train(to=DURING)
    place.mark("has trained")
    wait_until(lambda: place.told("over"))
    worker.look_around()
    worker.train(to=ROUNDS)
    return worker.leave()


def at_once(worker: Trainer) -> bool:
    """libzmq says nothing about it."""
    return True


def turned_away(worker: Trainer) -> bool:
    return worker.place.rank > 0 or bool(worker.transport.sockets.turned_away)


def refused(worker: Trainer) -> bool:
    return worker.place.rank == 2 or bool(worker.protocol.refused)


def run_beside(attack: Attack, folder, felt=at_once, revoked: bool = False):
    """Return the reports of workers that were attacked, unhurt, and what the intruder has done."""
    with Mesh(N, folder) as mesh:
        mesh.keys += new_keys(1)
        if revoked:
            extra = replace(peers_of(mesh.keys).all[INTRUDER], revoked=True)
            mesh.peers = Peers((*mesh.peers.all, extra))
        running = [mesh.start(rank, trains, felt) for rank in range(N)]
        mesh.wait_for_marks("has begun", range(N))
        intruder = mesh.start(INTRUDER, attacks, attack)
        mesh.wait_for_marks("attacks", [INTRUDER])
        mesh.tell("attacked")
        mesh.wait_for_marks("has trained", range(N))
        mesh.tell("enough")
        done = intruder.result()
        mesh.tell("over")
        reports = [process.result() for process in running]
    expected = simulated(Choco(TopK(0.25), gamma=0.3).where_edges_change(), topology.ring(N), ROUNDS)
    for rank, report in enumerate(reports):
        assert report.rounds == ROUNDS
        assert report.members == ["ALIVE"] * N
        assert not {news.what for news in report.news} & {"down", "suspect", "dead", "refused"}, report.news
        assert torch.equal(report.x, expected.x[rank])
    return reports, done, mesh


@pytest.mark.parametrize("revoked", [False, True])
def test_a_key_that_is_not_admitted(tmp_path, revoked):
    reports, done, mesh = run_beside(stranger, tmp_path, turned_away, revoked=revoked)
    assert done.keys() == {"HANDSHAKE_FAILED_AUTH"}
    for report in reports:
        assert report.turned_away == {mesh.keys[INTRUDER].public[:16]: done.total() // N}
        assert not report.refused


@pytest.mark.parametrize("attack", [believes_in_another_server, does_not_encrypt])
def test_a_handshake_that_fails(tmp_path, attack):
    reports, done, _ = run_beside(attack, tmp_path)
    assert done.total() >= N
    assert "HANDSHAKE_SUCCEEDED" not in done
    for report in reports:
        assert not report.refused
        assert not report.turned_away


def test_a_flood_of_handshakes(tmp_path):
    reports, done, _ = run_beside(floods, tmp_path, turned_away)
    assert done.keys() == {"HANDSHAKE_FAILED_AUTH"}
    assert [report.turned_away.total() for report in reports] == [done.total(), 0, 0]
    assert done.total() >= FLOOD


def test_a_member_of_another_run(tmp_path):
    reports, done, _ = run_beside(is_of_another_run, tmp_path, refused)
    assert done["greetings"] == 2
    for report in reports[:2]:
        assert report.refused.keys() == {("w2", "run")}
    assert not reports[2].refused


@pytest.mark.parametrize("attack", [scans_ports, is_slow])
def test_connections_without_a_handshake(tmp_path, attack):
    reports, done, _ = run_beside(attack, tmp_path)
    assert done["connections"] >= N * min(SCANS, SLOW)
    for report in reports:
        assert not report.refused
        assert not report.turned_away


def test_who_is_revoked_cannot_even_begin():
    keys = new_keys(2)
    first, second = peers_of(keys).all
    peers = Peers((first, replace(second, revoked=True)))
    with pytest.raises(ValueError, match=r"^the peers file has revoked w1: it is not admitted any more$"):
        gossamer.mesh(second.address, peers, keys[1])
