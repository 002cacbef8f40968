"""Two members that are handed each other's frames: what one does if the other is slow, hangs, or is wrong."""

from __future__ import annotations

import threading
from itertools import count

import pytest
import torch

from gossamer._mesh import greetings, neighbourhood
from gossamer._mesh.contacts import Send
from gossamer._mesh.frames import Frame, Kind, encode
from gossamer._mesh.link import MODEL, ROUNDS
from gossamer._mesh.members import Member, Status
from gossamer._mesh.neighbourhood import WRONG, Due, Neighbourhood
from gossamer._mesh.newcomer import SIZE, Donor
from gossamer._mesh.wiring import Wiring
from gossamer.topology import ring
from tests.support.pairs import new_member

SETTINGS = {"algorithm": "dpsgd"}


class Nothing:
    """What a worker knows of neighbours whose algorithm keeps nothing of them."""

    def copy(self):
        return None

    def meet(self, peer, copy):
        """Begin to know a neighbour."""

    def part(self, peer):
        """Forget a neighbour."""

    def catch_up(self, peer, message):
        """Take a message of an earlier round."""

    def digests(self, peer):
        return None


class Pair:
    """Two members that have begun together, and the edge between them."""

    def __init__(self, *, may_lag=False):
        self.now, self.numbers = 0.0, count(1)
        self.members = [self.member(i) for i in range(2)]
        for p in self.members:
            p.agree_on(SETTINGS)
            p.need(1 - p.id)
        self.carry()
        assert all(p.way_to_begin(frozenset((0, 1))) == "found" for p in self.members)
        for p in self.members:
            p.begin(together=True)
            p.rewire(Wiring(ring))
            p.be_ready()
        self.carry()
        self.hoods = [Neighbourhood(p, Nothing(), may_lag=may_lag) for p in self.members]
        for p, hood in zip(self.members, self.hoods, strict=True):
            hood.found()
            p.end_founding()

    def member(self, i):
        return new_member(i, self.numbers)

    def carry(self):
        """Hand over all frames, until there are none."""
        while any(p.out for p in self.members):
            for p in self.members:
                while p.out:
                    action = p.out.popleft()
                    if isinstance(action, Send):
                        self.members[action.peer].heard(f"{p.id:064x}", action.data, self.now)

    def pass_time(self, seconds):
        for _ in range(int(seconds / 0.5)):
            self.now += 0.5
            for p in self.members:
                p.tick(self.now)
            self.carry()

    def post(self, i, payload=b"abc", expected=3, phase=1):
        """Begin a round on one side; return whether it has an edge."""
        hood = self.hoods[i]
        edges = hood.begin()
        for peer in edges:
            hood.post(peer, memoryview(payload), Due(phase, expected), self.members[i].round)
        self.carry()
        return bool(edges)


def test_they_exchange():
    pair = Pair()
    for _ in range(3):
        assert pair.post(0)
        assert pair.post(1)
        for i, hood in enumerate(pair.hoods):
            (message,) = hood.collect().values()
            assert bytes(message.payload()) == b"abc"
            pair.members[i].round += 1
    assert not any(p.refused for p in pair.members)


@pytest.mark.parametrize(("payload", "phase"), [(b"abcd", 1), (b"", 1), (b"abc", 2)])
def test_a_message_that_is_not_what_is_due_ends_the_edge_and_not_the_worker(payload, phase):
    pair = Pair()
    pair.post(0, payload, expected=3, phase=phase)
    pair.post(1)
    assert pair.hoods[1].collect() == {}
    assert ("down", WRONG) in {(news.what, news.reason) for news in pair.members[1].news}
    pair.pass_time(2)
    assert pair.post(0)
    assert pair.post(1)
    assert len(pair.hoods[1].collect()) == 1, "a new edge is begun"


def test_who_hangs_is_waited_for_once():
    pair = Pair()
    hood = pair.hoods[0]
    assert pair.post(0)
    hood.give_up_late(hood.awaited)
    for _ in range(10):
        pair.pass_time(2)  # it gives signs of life, and would be linked again
        assert pair.members[0].links[1].up
        assert not pair.post(0)
    pair.members[1].round += 1  # it goes on
    pair.pass_time(2)
    assert pair.post(0)
    assert pair.post(1)
    assert len(hood.collect()) == 1


def test_who_takes_messages_too_slowly_is_given_up_before_they_fill_the_memory(monkeypatch):
    monkeypatch.setattr(neighbourhood, "WINDOW", 1000)
    pair = Pair(may_lag=True)
    stream = pair.members[0].links[1].streams[ROUNDS]
    monkeypatch.setattr(type(stream), "has_room", lambda *_: False)  # it takes none
    for _ in range(50):
        pair.post(0, bytes(100), expected=100)
        pair.hoods[0].go_on_without(1e9)
    assert sum(len(m.payload) for m in stream.queue) <= 1100
    assert "it takes messages too slowly" in {news.reason for news in pair.members[0].news}


def test_a_question_that_is_asked_again_does_not_queue_the_model_twice(monkeypatch):
    pair = Pair()
    donor, newcomer = pair.members
    stream = donor.links[1].streams[MODEL]
    monkeypatch.setattr(type(stream), "has_room", lambda *_: False)  # its line is slow
    for _ in range(3):
        newcomer.ask_for_model(0, 1)
        pair.carry()
        Donor(donor).answer(threading.Lock(), torch.zeros(3 * SIZE, dtype=torch.uint8), {})
        assert len(stream.queue) == 4


def test_more_than_a_gibibyte_may_be_one_message(monkeypatch):
    pair = Pair()
    link = pair.members[1].links[0]
    monkeypatch.setattr("gossamer._mesh.link.PIECE", 4)
    monkeypatch.setattr("gossamer._mesh.frames.PIECE", 4)
    pair.members[1].most_held = 8
    pair.post(0, bytes(12), expected=12)
    assert link.streams[ROUNDS].held == 8
    assert pair.members[1].refused["w0", "window"] == 1
    other = Pair()
    other.members[1].most_held = 12  # as for a model that large
    other.post(0, bytes(12), expected=12)
    other.post(1, bytes(12), expected=12)
    assert len(other.hoods[1].collect()) == 1


def test_who_does_not_train_yet_is_no_neighbour():
    pair = Pair()
    again = Member(1, f"{1:064x}", "w1", "h1:1", 9, Status.WAITING)  # it was started anew
    pair.members[0]._on_members(1, {"facts": [again.fact()]})
    assert pair.members[0].wanted == {}
    pair.members[0]._on_members(1, {"facts": [Member(1, again.key, "w1", "h1:1", 9, Status.ALIVE).fact()]})
    assert pair.members[0].wanted.keys() == {1}


@pytest.mark.parametrize(("theirs", "counts"), [(SETTINGS, False), ({"algorithm": "choco"}, True)])
def test_a_refusal_that_was_for_somebody_before(theirs, counts):
    """Its connection leads to whoever listens there now, with the same key."""
    pair = Pair()
    protocol = pair.members[1]
    refusal = Frame(Kind.REFUSAL, payload=greetings.write({"settings": theirs}))
    protocol.heard(f"{0:064x}", encode(b"together", refusal), 1.0)
    assert bool(protocol.refusals) == counts
    assert protocol.refused["w0", "stale"] == (not counts)


def test_a_link_that_was_closed_is_wanted_again_when_the_peer_is_back():
    pair = Pair()
    here, there = pair.members
    assert set(here.edges()) == {1}
    del here.links[1]  # as after a goodbye
    there.end(0, "begins anew")
    pair.carry()
    pair.pass_time(2.0)
    assert set(here.edges()) == {1}
    assert set(there.edges()) == {0}
