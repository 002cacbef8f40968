"""A round on its way over a transport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from gossamer.compress import wire
from gossamer.rounds.drive import advance
from gossamer.rounds.phase import Phase, Round, sealed
from gossamer.transport.base import Transport


class Stamps(Protocol):
    """A small number that workers add to the messages of a round's first phase (see RoundStamps)."""

    def write(self) -> int:
        """Return this worker's number."""

    def read(self, peer: int, stamp: int) -> None:
        """Take a neighbour's number; may raise."""


class Flight:
    """A round in flight: begun on construction, ended by `finish`. In between, messages travel."""

    def __init__(self, r: Round, transport: Transport, name: str, stamps: Stamps | None = None) -> None:
        self._round, self._transport, self._name, self._stamps = r, transport, name, stamps
        self._phase = 0
        self.sent: Counter[int] = Counter()  # bytes by peer
        self._under_way = self._begin_phase(advance(r, None))

    def finish(self) -> Counter[int]:
        """Run the round to its end and return the bytes it has sent, by peer."""
        while self._under_way:
            inbox = self._transport.wait(self._ticket)
            stamps = (
                {peer: _stamp_of(messages) for peer, messages in inbox.items()} if self._phase == 1 else {}
            )
            self._under_way = self._begin_phase(advance(self._round, inbox))
            if self._stamps is not None:  # only now, when the round has checked the messages
                for peer, value in stamps.items():
                    self._stamps.read(peer, value)
        return self.sent

    def abandon(self) -> None:
        """Receive the messages in flight and drop the round without finishing it."""
        if self._under_way:
            self._transport.wait(self._ticket)
        self._round.close()
        self._under_way = False

    def _begin_phase(self, phase: Phase | None) -> bool:
        """Start a phase, unless the round is over; return whether one is in flight."""
        if phase is None:
            return False
        self._phase += 1
        if self._stamps is not None and self._phase == 1:
            value = self._stamps.write()
            firsts = [sealed(next(iter(messages.values()))) for messages in phase.send.values()]
            for message in {id(message): message for message in firsts}.values():
                wire.stamp(message, value)  # one message may go to all neighbours
        self._ticket = self._transport.start(phase, f"{self._name}, phase {self._phase}")
        self.sent.update(self._ticket.sent)
        return True


def _stamp_of(messages: Mapping[str, Tensor]) -> int:
    return wire.stamp_of(next(iter(messages.values())))


def run(r: Round, transport: Transport, name: str) -> int:
    """Run a round now and return the bytes it has sent."""
    return Flight(r, transport, name).finish().total()
