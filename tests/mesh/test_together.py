"""What all members do together, of which one begins anew in the middle."""

from __future__ import annotations

import pytest
import torch

from gossamer.errors import PeerLost
from gossamer.rounds.phase import Phase
from tests.support.meshes import join, made_up_keys, peers_of
from tests.support.waiting import LIMIT, wait_until

NAME = "a question"
MESSAGE = torch.arange(8, dtype=torch.uint8)


@pytest.fixture
def two():
    peers = peers_of(made_up_keys(2))
    transports = [join(peers, i, deadline=LIMIT) for i in range(2)]
    yield transports
    for transport in transports:
        transport.close()


def both_are_up(transports):
    links = [t.protocol.links.get(1 - i) for i, t in enumerate(transports)]
    return all(link is not None and link.up for link in links) and links[0].epoch == links[1].epoch


def exchange(transport, send=None, expect=None):
    peer = 1 - transport.rank
    phase = Phase.of({peer: MESSAGE} if send else {}, {peer: MESSAGE.numel()} if expect else {})
    return transport.wait(transport.start(phase, NAME))


def breaks_after_a_message(a, b):
    """Let b take what a has sent, and begin anew: it will wait for that message again."""
    exchange(a, send=True)
    assert torch.equal(exchange(b, expect=True)[0][""], MESSAGE)
    b.begin_anew([0])
    with b.sockets.changed:
        b.protocol.need(0)
        b.sockets.wake()
    wait_until(lambda: a.protocol.breaks[1] and both_are_up((a, b)))


def test_who_expects_nothing_from_it_yet_notices_too(two):
    """Otherwise each would wait for the other: a for an answer, and b for the question."""
    a, b = two
    breaks_after_a_message(a, b)
    with pytest.raises(PeerLost, match="worker 1 was lost"):
        exchange(a, expect=True)


def test_what_comes_next_is_not_spoilt(two):
    a, b = two
    breaks_after_a_message(a, b)
    exchange(b, send=True)
    with a.together():
        assert torch.equal(exchange(a, expect=True)[1][""], MESSAGE)


def test_a_link_that_is_closed_while_it_is_used_again_loses_nothing(two):
    """One end has had no use for it for a while; a message of the other is on its way."""
    a, b = two
    exchange(a, send=True)
    exchange(b, expect=True)
    with a.sockets.changed:
        exchange(b, send=True)
        a.protocol._release(a.protocol.links[1])
        a.sockets.wake()
    assert torch.equal(exchange(a, expect=True)[1][""], MESSAGE)
    assert not a.protocol.breaks[1]
    assert not b.protocol.breaks[0]


def test_one_that_has_left_has_got_what_it_needed(two):
    a, b = two
    exchange(a, send=True)
    exchange(b, expect=True)
    b.close()
    wait_until(lambda: a.protocol.members.by_id[1].status.name == "LEFT")
    assert exchange(a) == {}
