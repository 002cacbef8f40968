"""A round and its phases: what is sent, what is expected, what has arrived."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from gossamer.errors import WireError

Inbox = dict[int, Tensor]  # peer -> one flat uint8 message; inboxes are in rank order


@dataclass(frozen=True)
class Phase:
    """One phase: what goes out, and from whom how many bytes will come in."""

    send: Inbox
    expect: dict[int, int]


Round = Generator[Phase, Inbox, None]


@contextmanager
def blame(peer: int) -> Iterator[None]:
    """Name the peer in a WireError raised inside."""
    try:
        yield
    except WireError as error:
        raise WireError(error.problem, peer) from None
