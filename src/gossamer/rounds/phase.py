"""A round and what it asks for: phases of messages, and steps of the user's optimizer."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor

from gossamer.compress.wire import Message
from gossamer.errors import WireError

Messages = Mapping[str, Message | Tensor]  # by name, "" for a single one; a Tensor is sealed already
Inbox = dict[int, dict[str, Tensor]]  # peer -> the sealed messages it sent, by name; in the order of ids


@dataclass(frozen=True)
class Phase:
    """One phase: the messages to every peer, and the lengths of those expected from every peer.

    Several messages, each with a name, may go to one peer at once. They are concatenated in order, so that
    both ends know which bytes are whose.
    """

    send: Mapping[int, Messages]
    expect: Mapping[int, Mapping[str, int]]  # bytes

    @classmethod
    def of(cls, send: Mapping[int, Message | Tensor], expect: Mapping[int, int]) -> Phase:
        """Return the phase with one message to every peer, and one of this length from every other."""
        return cls({j: {"": m} for j, m in send.items()}, {j: {"": size} for j, size in expect.items()})

    def outbox(self) -> dict[int, Tensor]:
        """Return the bytes for every peer, in the order of ids: here messages are sealed."""
        return {j: _end_to_end([sealed(m) for m in self.send[j].values()]) for j in sorted(self.send)}

    def traffic(self) -> Traffic:
        """Return the lengths alone: what a clock needs to know, without the messages themselves."""
        return Traffic(self.sent(), self.sizes())

    def sent(self) -> dict[int, int]:
        """Return how many bytes go to every peer."""
        return {j: sum(map(_nbytes, messages.values())) for j, messages in self.send.items()}

    def sizes(self) -> dict[int, int]:
        """Return how many bytes will come from every peer, in the order of ids."""
        return {j: sum(self.expect[j].values()) for j in sorted(self.expect)}

    def inbox(self, arrived: Mapping[int, Tensor]) -> Inbox:
        """Take the bytes that have arrived apart into messages."""
        return {j: take_apart(data, self.expect[j]) for j, data in arrived.items()}


class Traffic(NamedTuple):
    """The bytes of a phase by peer: what is sent, and what is expected."""

    sent: Mapping[int, int]
    expected: Mapping[int, int]


@final
class Step:
    """A round asks for one step of the user's optimizer; the driver takes it for all buckets at once."""


STEP = Step()

Round = Generator[Phase, Inbox, None]  # what transports carry
StepsAndPhases = Generator[Phase | Step, Inbox, None]  # what an algorithm writes


def sealed(message: Message | Tensor) -> Tensor:
    """Return a message as bytes on the host."""
    return message if isinstance(message, Tensor) else message.sealed()


@contextmanager
def blame(peer: int) -> Iterator[None]:
    """Name the peer in a WireError raised inside."""
    try:
        yield
    except WireError as error:
        raise WireError(error.problem, peer) from None


def _nbytes(message: Message | Tensor) -> int:
    return message.numel() if isinstance(message, Tensor) else message.nbytes


def _end_to_end(messages: list[Tensor]) -> Tensor:
    return messages[0] if len(messages) == 1 else torch.cat(messages)


def take_apart(data: Tensor, sizes: Mapping[str, int]) -> dict[str, Tensor]:
    """Return the messages that were sent end to end, by name."""
    if len(sizes) == 1:
        return dict.fromkeys(sizes, data)
    parts = torch.split_with_sizes(data, list(sizes.values()))
    return {name: part.clone() for name, part in zip(sizes, parts, strict=True)}
