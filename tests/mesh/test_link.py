"""One end of a link: greetings, numbers, windows, and what is refused."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer._mesh import link as links
from gossamer._mesh.frames import Frame, Kind, Refused
from gossamer._mesh.link import COPIES, MODEL, MOST_AHEAD, OTHERS, ROUNDS, Link, Message

STREAMS = (ROUNDS, OTHERS, COPIES, MODEL)


def new_link(first=1):
    """Return a link with its own random numbers, which begin like this."""
    numbers = count(first, 997 * first)
    return Link(1, lambda: next(numbers), now=0.0)


def pair():
    """Return the two ends of a link that is up."""
    a, b = new_link(3), new_link(5)
    a.greet(b.mine, 0)
    b.greet(a.mine, a.theirs)
    a.greet(b.mine, b.theirs)
    assert a.up
    assert b.up
    assert a.epoch == b.epoch != 0
    return a, b


def message(payload, phase=7, weight=0.0):
    return Message(memoryview(payload), phase, 0, weight)


def frame(link, number, payload=b"x", **more):
    """Return a piece that the peer of a link would send."""
    return Frame(Kind.DATA, **{"epoch": link.epoch, "phase": 7, "number": number, "payload": payload, **more})


def refused(function, *arguments):
    with pytest.raises(Refused) as refusal:
        function(*arguments)
    return str(refusal.value)


def test_two_ends_are_up_after_three_greetings():
    a, b = new_link(3), new_link(5)
    assert a.greet(b.mine, 0) == (False, True)
    assert not a.up
    assert b.greet(a.mine, a.theirs) == (False, True)
    assert b.up
    assert a.greet(b.mine, b.theirs) == (False, True)
    assert b.greet(a.mine, a.theirs) == (False, False), "both have heard each other: no answer"
    assert a.epoch == b.epoch == 3 ^ 5


def test_who_begins_anew_ends_the_epoch():
    a, b = pair()
    a.post(ROUNDS, message(b"never sent twice"))
    before = a.epoch
    b.end()
    assert a.greet(b.mine, 0) == (True, True)
    assert not a.up
    assert a.epoch != before
    assert [s.posted for s in a.streams] == [0] * len(STREAMS)


def test_old_and_empty_greetings_are_refused():
    a, _ = pair()
    assert refused(a.greet, 999, 12345) == "stale", "it answers a greeting that this end has forgotten"
    assert refused(a.greet, 0, a.mine) == "greeting"
    assert a.up


@pytest.mark.parametrize("stream", STREAMS)
def test_messages_are_numbered_from_1_in_each_stream(stream):
    a, _ = pair()
    assert [a.post(stream, message(b"%d" % k)) for k in range(3)] == [1, 2, 3]
    sent = list(a.outgoing())
    assert [(f.stream, f.number, bytes(f.payload), f.phase) for f in sent] == [
        (stream, 1, b"0", 7),
        (stream, 2, b"1", 7),
        (stream, 3, b"2", 7),
    ]
    assert {f.epoch for f in sent} == {a.epoch}


def test_nothing_leaves_before_the_link_is_up():
    link = new_link()
    link.post(ROUNDS, message(b"x"))
    assert list(link.outgoing()) == []


@given(st.permutations(range(1, 9)), st.permutations(range(1, 9)))
def test_messages_may_arrive_and_be_taken_in_any_order(arrival, order):
    a, _ = pair()
    for number in arrival:
        a.arrive(frame(a, number, b"%d" % number, weight=number / 10))
    for k, number in enumerate(order, 1):
        found = a.take(ROUNDS, number)
        assert (bytes(found.payload()), found.weight) == (b"%d" % number, number / 10)
        assert a.take(ROUNDS, number) is None, "once"
        s = a.streams[ROUNDS]
        taken = set(order[:k])
        assert s.taken == next(i for i in range(9) if i + 1 not in taken)
        assert s.early == {i for i in taken if i > s.taken}
        assert s.held == 8 - k
    assert a.claims() == [8, 0, 0, 0]


@given(st.binary(max_size=40), st.data())
def test_a_message_in_pieces_is_put_together_in_any_order(payload, draws):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(links, "PIECE", 7)
        a, b = pair()
        a.post(OTHERS, message(payload))
        pieces = list(a.outgoing())
    assert all(len(piece.payload) == 7 for piece in pieces[:-1])
    shuffled = draws.draw(st.permutations(pieces))
    for piece in shuffled:
        assert b.take(OTHERS, 1) is None, "not before it is whole"
        b.arrive(piece)
    assert bytes(b.take(OTHERS, 1).payload()) == payload
    assert b.streams[OTHERS].held == 0


@given(st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=40))
def test_a_window_bounds_what_is_under_way_and_lets_all_through(steps):
    """One message always may go, even one that is larger than the window."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(links, "WINDOW", 50)
        a, b = pair()
        arrived = 0
        for size, reads in steps:
            a.post(ROUNDS, message(bytes(size)))
            arrived = move(a, b, arrived, reads=reads)
            under_way = [n for _, n in a.streams[ROUNDS].unclaimed]
            assert len(under_way) <= 1 or sum(under_way) <= 50
        for _ in steps:
            arrived = move(a, b, arrived, reads=True)
    assert arrived == len(steps)
    assert not a.streams[ROUNDS].queue


def test_no_more_messages_are_under_way_than_a_peer_may_be_ahead(monkeypatch):
    """Otherwise the peer would refuse those beyond, and never get them again."""
    monkeypatch.setattr(links, "MOST_AHEAD", 3)
    a, b = pair()
    for _ in range(5):
        a.post(ROUNDS, message(b""))
    assert move(a, b, 0, reads=False) == 0
    assert len(b.streams[ROUNDS].arriving) == 3
    assert move(a, b, 0, reads=True) == 3
    assert move(a, b, 3, reads=True) == 5


def move(a, b, arrived, *, reads):
    """Move what may be sent; let the peer take it and say so, if it reads."""
    for sent in a.outgoing():
        b.arrive(sent)
    while reads and b.take(ROUNDS, arrived + 1) is not None:
        arrived += 1
        assert b.owes_claim() or b.streams[ROUNDS].owed < 50 // 4
    if reads:
        for stream, taken in enumerate(b.claims()):
            a.claim(stream, taken)
    return arrived


def test_what_comes_twice_is_refused_and_changes_nothing():
    a, _ = pair()
    a.arrive(frame(a, 1, b"abc"))
    a.arrive(frame(a, 2, b"de"))
    assert refused(a.arrive, frame(a, 1, b"xyz")) == "duplicate"
    assert bytes(a.take(ROUNDS, 2).payload()) == b"de"
    assert refused(a.arrive, frame(a, 2, b"xy")) == "duplicate", "also after it was taken early"
    assert bytes(a.take(ROUNDS, 1).payload()) == b"abc"
    assert refused(a.arrive, frame(a, 1, b"xyz")) == "duplicate"
    assert refused(a.arrive, frame(a, 0, b"xyz")) == "duplicate", "numbers begin with 1"
    assert a.streams[ROUNDS].held == 0
    assert not a.streams[ROUNDS].arriving


def test_a_peer_may_be_ahead_only_so_far():
    a, _ = pair()
    a.arrive(frame(a, MOST_AHEAD))
    assert refused(a.arrive, frame(a, MOST_AHEAD + 1)) == "ahead"
    a.arrive(frame(a, 1))
    a.take(ROUNDS, 1)
    a.arrive(frame(a, MOST_AHEAD + 1))
    assert len(a.streams[ROUNDS].arriving) == 2


@pytest.mark.parametrize("change", [{"pieces": 3}, {"phase": 8}], ids=str)
def test_the_pieces_of_a_message_must_go_together(change):
    a, _ = pair()
    a.arrive(frame(a, 1, piece=0, pieces=2))
    assert refused(a.arrive, frame(a, 1, **{"piece": 1, "pieces": 2, **change})) == "changed"
    assert a.streams[ROUNDS].held == 1


def test_what_is_held_is_bounded():
    a, _ = pair()
    a.arrive(frame(a, 1, b"12345678"), most_held=10)
    assert refused(lambda each: a.arrive(each, most_held=10), frame(a, 2, b"123")) == "window"
    a.arrive(frame(a, 2, b"12"), most_held=10)
    a.take(ROUNDS, 1)
    a.arrive(frame(a, 3, b"12345678"), most_held=10)


def test_a_peer_cannot_claim_what_was_not_sent():
    a, _ = pair()
    a.post(ROUNDS, message(b"x"))
    assert refused(a.claim, ROUNDS, 1) == "claim", "it is still here"
    assert len(list(a.outgoing())) == 1
    a.claim(ROUNDS, 1)
    assert refused(a.arrive, frame(a, 1, taken=2)) == "claim"


def test_frames_of_another_epoch_or_stream_are_refused():
    a, _ = pair()
    assert refused(a.arrive, frame(a, 1, epoch=a.epoch ^ 1)) == "epoch"
    assert refused(a.arrive, frame(a, 1, epoch=0)) == "epoch"
    assert refused(a.arrive, frame(a, 1, stream=len(STREAMS))) == "stream"
    silent = new_link()
    assert refused(silent.confirm, frame(silent, 1)) == "epoch", "there is no epoch before a greeting"


def test_a_link_is_over_when_the_last_messages_of_who_has_left_are_here():
    a, _ = pair()
    a.arrive(frame(a, 1))
    assert not a.over
    a.last = [2, 0, 1, 0]
    assert not a.over
    a.arrive(frame(a, 2))
    assert not a.over
    a.arrive(frame(a, 1, stream=COPIES))
    assert a.over
    assert a.take(ROUNDS, 2) is not None
    assert a.over, "it does not matter who takes what first"


def test_what_all_do_together_is_kept_when_rounds_are_forgotten():
    a, _ = pair()
    for stream in STREAMS:
        a.arrive(frame(a, 1, b"abc", stream=stream))
    a.forget_rounds()
    assert [s.held for s in a.streams] == [0, 3, 0, 0]
    assert bytes(a.take(OTHERS, 1).payload()) == b"abc"
    assert a.take(ROUNDS, 1) is None
    assert refused(a.arrive, frame(a, 1)) == "duplicate"
