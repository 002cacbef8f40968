"""Greetings, goodbyes and messages that overtake each other: nothing is lost without notice."""

from __future__ import annotations

import pytest

from gossamer._mesh.contacts import Close
from gossamer._mesh.frames import Kind
from gossamer._mesh.link import OTHERS, Message
from gossamer._mesh.wiring import Wiring
from gossamer.topology import ring
from tests.support.pairs import hear, said, strangers, talk


def test_who_is_misled_by_a_late_greeting_is_put_right_at_once():
    """It begins anew with somebody that there was once; the other end, which has not, says who it is now."""
    x, y, stale = strangers()
    x.need(y.id)
    talk(x, y)
    assert x.links[y.id].up
    hear(y, stale)
    assert not y.links[x.id].up
    talk(x, y)
    assert x.refused["w1", "stale"] == 1
    assert x.links[y.id].up
    assert y.links[x.id].up
    assert x.links[y.id].epoch == y.links[x.id].epoch
    assert x.breaks[y.id] == y.breaks[x.id] == 1


def test_a_message_that_came_between_two_greetings_out_of_order_is_not_lost_without_notice():
    """A process is greeted, again after its peer has connected anew, and then by what was sent at first."""
    x, y, stale = strangers()
    x.need(y.id)
    hear(y, said(x))
    hear(x, said(y))
    assert x.links[y.id].up
    x.post(y.id, OTHERS, Message(memoryview(b"for all"), phase=1))
    frames = said(x)
    data = [frame for frame in frames if frame[3] == Kind.DATA]
    hear(y, [*stale, *data])
    assert y.refused["w0", "epoch"] == 1, "it has come too soon"
    hear(y, [frame for frame in frames if frame not in data])
    talk(x, y)
    for p in (x, y):
        p.tick(1.0)
    talk(x, y)
    assert x.links[y.id].up
    assert y.links[x.id].up
    assert x.breaks[y.id] == y.breaks[x.id] == 1, "both know that something may be lost"
    assert "messages are missing" in [news.reason for news in (*x.news, *y.news)]


@pytest.mark.parametrize("wired", [False, True])
def test_an_idle_link_is_closed_after_its_goodbye_and_what_was_on_its_way_is_sent_again(wired):
    """Over the same connection, the greeting that may follow comes after the goodbye."""
    x, y, _ = strangers()
    x.need(y.id)
    talk(x, y)
    if wired:
        y.begin()
        y.rewire(Wiring(ring))  # x does not train: y wants no edge to it
        talk(x, y)
    y.post(x.id, OTHERS, Message(memoryview(b"for all"), phase=1))
    x._release(x.links[y.id])
    assert not any(isinstance(action, Close) for action in x.out)
    x.need(y.id)
    talk(x, y)
    for p in (x, y):
        p.tick(1.0)
    talk(x, y)
    found = x.take(y.id, OTHERS, 1)
    assert found is not None
    assert bytes(found.payload()) == b"for all"
    assert not x.breaks[y.id]
    assert not y.breaks[x.id]


def test_connections_of_an_idle_link_are_closed_in_the_end():
    x, y, _ = strangers()
    x.need(y.id)
    talk(x, y)
    x._release(x.links[y.id])
    talk(x, y)
    x.tick(x.timing.silence - 1.0)
    assert Close(y.id) not in x.out
    x.tick(x.timing.silence + 1.0)
    assert Close(y.id) in x.out
