"""The contract of a transport."""

from __future__ import annotations

import torch
from torch import Tensor

from gossamer.rounds.phase import Inbox, Phase
from gossamer.transport import Transport

SIZES = (1, 16, 1000, 100_000, 3_000_000)  # below and above any socket buffer


def check_transport(transport: Transport) -> None:
    """Raise an AssertionError if a transport breaks its contract. All its workers call this at once.

    It sends messages of many sizes in all patterns that algorithms use, has several phases under
    way, checks every byte that arrives and the counters of bytes.
    """
    before = dict(transport.sent)
    sent = 0
    for size in SIZES:
        sent += _both_ways(transport, size)
    sent += _around(transport) + _one_way(transport) + _in_flight(transport)
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
        assert torch.equal(inbox[sender], expected), f"{size} bytes from worker {sender} arrived changed"


def _both_ways(transport: Transport, size: int) -> int:
    """Exchange with everyone, each direction of another length."""
    me, others = transport.rank, [j for j in range(transport.size) if j != transport.rank]
    outbox = {j: _message(me, j, size + me) for j in others}
    sizes = {j: size + j for j in others}
    _check(transport.wait(transport.start(Phase(outbox, sizes), "both ways")), me, sizes)
    return sum(m.numel() for m in outbox.values())


def _around(transport: Transport) -> int:
    """Send to the right and hear the left, which are not the same worker."""
    me, n = transport.rank, transport.size
    if n < 3:
        return 0
    left, right = (me - 1) % n, (me + 1) % n
    inbox = transport.wait(transport.start(Phase({right: _message(me, right, 500)}, {left: 500}), "around"))
    _check(inbox, me, {left: 500})
    return 500


def _one_way(transport: Transport) -> int:
    """Worker 0 sends to all and hears nobody."""
    me, others = transport.rank, range(1, transport.size)
    if me == 0:
        outbox = {j: _message(0, j, 900) for j in others}
        assert transport.wait(transport.start(Phase(outbox, {}), "one way")) == {}
        return 900 * len(others)
    _check(transport.wait(transport.start(Phase({}, {0: 900}), "one way")), me, {0: 900})
    return 0


def _in_flight(transport: Transport) -> int:
    """Begin several phases before the first is waited for; they must not be confused."""
    me, others = transport.rank, [j for j in range(transport.size) if j != transport.rank]
    sizes = dict.fromkeys(others, 2000)
    tickets = [
        transport.start(Phase({j: _message(me, j, 2000, salt) for j in others}, sizes), f"flight {salt}")
        for salt in range(4)
    ]
    for salt in (2, 0, 1, 3):
        _check(transport.wait(tickets[salt]), me, sizes, salt)
    return 4 * 2000 * len(others)
