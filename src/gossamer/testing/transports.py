"""The contract of a transport."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from gossamer.rounds.phase import Inbox, Phase
from gossamer.rounds.view import View
from gossamer.topology import complete
from gossamer.transport import Transport

SIZES = (1, 16, 1000, 100_000, 3_000_000)  # below and above any socket buffer


def check_transport(transport: Transport) -> None:
    """Raise an AssertionError if a transport breaks its contract. All its workers call this at once.

    It sends messages of many sizes in all patterns that algorithms use, several at once by name, has
    several phases in flight, waits for some and for all, checks every byte that arrives and the counters
    of bytes. The transport is closed at the end.

    Args:
        transport: This worker's end.

    Raises:
        AssertionError: The first thing that is wrong.

    Example:
        >>> from gossamer.testing import check_transport
        >>> from gossamer.transport import Alone
        >>> check_transport(Alone())
    """
    before = dict(transport.sent)
    sent = 0
    for size in SIZES:
        sent += _both_ways(transport, size)
    sent += _around(transport) + _one_way(transport) + _in_flight(transport)
    sent += _named(transport) + _little_by_little(transport) + _on_time(transport)
    transport.configure(View.of(complete(transport.size)))
    sent += _both_ways(transport, 100)
    assert transport.wait(transport.start(Phase({}, {}), "nothing")) == {}, (
        "an empty phase brings no messages"
    )
    counted = sum(transport.sent.values()) - sum(before.values())
    assert counted == sent, f"{sent} bytes were sent, {counted} counted"
    transport.close()
    transport.close()


def _message(sender: int, receiver: int, size: int, salt: int = 0) -> Tensor:
    start = sender * 7 + receiver * 31 + salt * 101 + size
    return (torch.arange(start, start + size) % 251).to(torch.uint8)


def _check(inbox: Inbox, me: int, sizes: dict[int, int], salt: int = 0) -> None:
    assert list(inbox) == sorted(sizes), (
        f"messages from {list(inbox)}, expected {sorted(sizes)} in rank order"
    )
    for sender, size in sizes.items():
        expected = _message(sender, me, size, salt)
        assert torch.equal(inbox[sender][""], expected), f"{size} bytes from worker {sender} arrived changed"


def _both_ways(transport: Transport, size: int) -> int:
    """Exchange with all others, messages of different lengths."""
    me, others = transport.rank, [j for j in range(transport.size) if j != transport.rank]
    outbox = {j: _message(me, j, size + me) for j in others}
    sizes = {j: size + j for j in others}
    _check(transport.wait(transport.start(Phase.of(outbox, sizes), "both ways")), me, sizes)
    return sum(m.numel() for m in outbox.values())


def _around(transport: Transport) -> int:
    """Send to the right and receive from the left, which are not the same worker."""
    me, n = transport.rank, transport.size
    if n < 3:
        return 0
    left, right = (me - 1) % n, (me + 1) % n
    inbox = transport.wait(
        transport.start(Phase.of({right: _message(me, right, 500)}, {left: 500}), "around")
    )
    _check(inbox, me, {left: 500})
    return 500


def _one_way(transport: Transport) -> int:
    """Worker 0 sends to all and receives nothing."""
    me, others = transport.rank, range(1, transport.size)
    if me == 0:
        outbox = {j: _message(0, j, 900) for j in others}
        assert transport.wait(transport.start(Phase.of(outbox, {}), "one way")) == {}
        return 900 * len(others)
    _check(transport.wait(transport.start(Phase.of({}, {0: 900}), "one way")), me, {0: 900})
    return 0


def _in_flight(transport: Transport) -> int:
    """Begin several phases before waiting for the first; they must not be confused."""
    me, others = transport.rank, [j for j in range(transport.size) if j != transport.rank]
    sizes = dict.fromkeys(others, 2000)
    tickets = [
        transport.start(Phase.of({j: _message(me, j, 2000, salt) for j in others}, sizes), f"flight {salt}")
        for salt in range(4)
    ]
    for salt in (2, 0, 1, 3):
        _check(transport.wait(tickets[salt]), me, sizes, salt)
    return 4 * 2000 * len(others)


def _named(transport: Transport) -> int:
    """Send two messages at once to everyone."""
    me, others = transport.rank, [j for j in range(transport.size) if j != transport.rank]
    sizes = {"x": 700, "v": 90}
    send = {j: {name: _message(me, j, size) for name, size in sizes.items()} for j in others}
    inbox = transport.wait(transport.start(Phase(send, dict.fromkeys(others, sizes)), "two names"))
    for j in others:
        for name, size in sizes.items():
            assert torch.equal(inbox[j][name], _message(j, me, size)), f"'{name}' from {j} arrived changed"
    return sum(sizes.values()) * len(others)


def _little_by_little(transport: Transport) -> int:
    """Ask how far a phase is, wait for one message, then for all."""
    me, others = transport.rank, [j for j in range(transport.size) if j != transport.rank]
    sizes = dict.fromkeys(others, 3000)
    ticket = transport.start(Phase.of({j: _message(me, j, 3000) for j in others}, sizes), "little by little")
    transport.poll(ticket)
    some = transport.wait(ticket, need=min(1, len(others)))
    assert len(some) >= min(1, len(others)), "need=1 returned without a message"
    _check(transport.wait(ticket), me, sizes)
    assert transport.poll(ticket), "poll says no after all has arrived"
    return 3000 * len(others)


def _on_time(transport: Transport) -> int:
    """Do not wait at all, which may bring nothing; and lose nothing by it."""
    me, others = transport.rank, [j for j in range(transport.size) if j != transport.rank]
    sizes = dict.fromkeys(others, 4000)
    ticket = transport.start(Phase.of({j: _message(me, j, 4000) for j in others}, sizes), "on time")
    some = transport.wait(ticket, until=time.monotonic())
    _check(some, me, {j: sizes[j] for j in some})
    _check(transport.wait(ticket), me, sizes)
    return 4000 * len(others)
