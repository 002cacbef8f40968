"""Two members without a network: what they say is handed over by the test."""

from __future__ import annotations

from itertools import count

from gossamer._mesh.contacts import Send
from gossamer._mesh.link import Link
from gossamer._mesh.members import Member, Status
from gossamer._mesh.protocol import Protocol


def new_member(i, numbers):
    entry = lambda j, *more: Member(j, f"{j:064x}", f"w{j}", f"h{j}:1", *more)  # noqa: E731
    return Protocol(entry(i, 5, Status.WAITING), [entry(1 - i)], b"together", lambda: next(numbers), 0.0)


def strangers():
    """Return two members that have not met, and a greeting of the first that has not arrived yet."""
    numbers = count(1)
    x, y = (new_member(i, numbers) for i in range(2))
    x._greet(Link(y.id, x._nonce, 0.0))
    return x, y, said(x)


def said(by):
    """Return the frames that a member has to send."""
    sent = [action.data for action in by.out if isinstance(action, Send)]
    by.out.clear()
    return sent


def hear(by, frames):
    for data in frames:
        by.heard(f"{1 - by.id:064x}", data, 0.0)


def talk(x, y):
    """Hand over all frames, until there are none; no time passes."""
    while x.out or y.out:
        hear(y, said(x))
        hear(x, said(y))
