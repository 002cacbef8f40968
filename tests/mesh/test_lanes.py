"""Which frames leave first, over connections that are full, busy or free."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from gossamer._mesh import lanes
from gossamer._mesh.connections import Connection
from gossamer._mesh.contacts import Channel
from gossamer._mesh.lanes import Lanes
from gossamer._mesh.members import Member
from gossamer._mesh.tcp_info import TcpInfo

QUIET = TcpInfo(
    rtt=0.0,
    rtt_variation=0.0,
    min_rtt=0.0,
    retransmits=0,
    rate=0.0,
    limited=True,
    sent=0,
    resent=0,
    unacked=0,
    unsent=0,
)
PEER = Member(1, "0" * 64, "w1", "h1:1")


class Socket:
    """Takes as many frames as there is room for."""

    def __init__(self, room):
        self.room, self.taken = room, []

    def send(self, data, flags, copy):
        if len(self.taken) >= self.room:
            raise zmq.Again
        self.taken.append(data)


class Wired(Connection):
    """A connection of which the kernel says what the test wants."""

    found = QUIET

    def measured(self):
        return self.found


class Dialler:
    """Makes connections that have room for as many frames as they may queue."""

    def dial_all(self, count, peer, address, key, SNDHWM):
        return [Wired(peer, False, Socket(SNDHWM)) for _ in range(count)]

    def hang_up(self, connection, linger):
        """Close it."""


class Poller:
    """Watches nothing."""

    def register(self, socket, flags):
        """Watch."""

    def unregister(self, socket):
        """Cease to."""


@pytest.fixture
def two(monkeypatch):
    """All connections to a member, the lane for rounds, the one for copies, and a clock."""
    clock = [100.0]
    monkeypatch.setattr(lanes, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    dialler: Any = Dialler()
    every = Lanes(dialler, Poller(), connections=1)
    return every, every.to(PEER, Channel.DATA), every.to(PEER, Channel.COPIES), clock


def taken(lane):
    return lane.connections[0].socket.taken


def empty(lane):
    lane.connections[0].socket.taken.clear()


def test_copies_leave_piece_by_piece_while_nothing_else_is_on_its_way(two):
    every, _, copies, _ = two
    for piece in (b"1", b"2", b"3"):
        assert copies.send(piece)
    assert taken(copies) == []
    for left, piece in ((True, b"1"), (True, b"2"), (False, b"3")):
        assert every.move() == left
        assert taken(copies) == [piece]
        assert every.move() == left, "its connection has no room"
        assert taken(copies) == [piece]
        empty(copies)


@pytest.mark.parametrize("on_its_way", [{"unacked": 3}, {"unsent": 100}])
def test_copies_wait_for_rounds_but_not_for_ever(two, on_its_way):
    every, rounds, copies, clock = two
    copies.send(b"1")
    every.move()
    empty(copies)
    copies.send(b"2")
    rounds.connections[0].found = replace(QUIET, **on_its_way)
    assert every.move()
    assert taken(copies) == []
    clock[0] += lanes.LONGEST_PAUSE / 2
    assert every.move()
    assert taken(copies) == []
    clock[0] += lanes.LONGEST_PAUSE
    assert not every.move()
    assert taken(copies) == [b"2"]


def test_copies_wait_for_rounds_for_which_there_is_no_room(two):
    every, rounds, copies, _ = two
    for _ in range(lanes.MOST_QUEUED + 1):
        rounds.send(b"round")
    copies.send(b"1")
    every.move()
    empty(copies)
    copies.send(b"2")
    assert every.move()
    assert taken(copies) == []
    empty(rounds)
    assert not every.move(), "there is room for the last one"
    assert taken(rounds) == [b"round"]
    assert taken(copies) == [b"2"]


def test_a_copy_waits_until_the_piece_before_it_has_left(two):
    every, _, copies, _ = two
    copies.send(b"1")
    copies.send(b"2")
    every.move()
    empty(copies)
    copies.connections[0].found = replace(QUIET, unsent=1)
    assert every.move()
    assert taken(copies) == []
    copies.connections[0].found = replace(QUIET, unacked=1)
    assert not every.move(), "it is on its way"
    assert taken(copies) == [b"2"]


def test_rounds_wait_for_nobody(two):
    every, rounds, copies, _ = two
    copies.connections[0].found = replace(QUIET, unacked=9, unsent=9)
    copies.send(b"copy")
    rounds.send(b"round")
    assert taken(rounds) == [b"round"]
    every.close(PEER.id)
    assert list(every.of(PEER.id)) == [None] * len(Channel)
