"""What a transport does: carry messages between workers, or raise an error that names the peer in time."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from torch import Tensor

from gossamer.errors import WireError
from gossamer.rounds.phase import Inbox, Phase
from gossamer.rounds.view import View


@dataclass(eq=False)
class Ticket:
    """A phase in flight."""

    phase: Phase
    name: str
    began: float  # by time.monotonic()
    sent: Counter[int]  # bytes by peer
    own: Any = None  # what `begin` returned
    arrived: dict[int, Tensor] = field(default_factory=dict)


class Transport(ABC):
    """A worker's end of the network.

    `start` begins a phase and returns at once; `wait` ends it. Several phases may be in flight and
    be waited for in any order; two workers' messages are matched in the order in which they were started.

    A subclass implements `begin` and `collect`, which deal with bytes; all else is done here.
    """

    def __init__(self, rank: int, size: int, deadline: float) -> None:
        self.rank, self.size = rank, size
        self.everybody: Sequence[int] = range(size)  # the ids of all workers that begin together
        self.deadline = deadline  # seconds that `wait` waits
        self.sent: Counter[int] = Counter()  # bytes of all phases started, by peer
        self.received: Counter[int] = Counter()
        self.waited = 0.0  # seconds spent in `wait`

    @final
    def start(self, phase: Phase, name: str) -> Ticket:
        """Begin to send and receive; return a ticket for `wait`. Messages become bytes on the host here."""
        outbox = phase.outbox()
        ticket = Ticket(phase, name, time.monotonic(), Counter({j: m.numel() for j, m in outbox.items()}))
        ticket.own = self.begin(outbox, phase.sizes(), ticket)
        self.sent.update(ticket.sent)
        return ticket

    @final
    def wait(self, ticket: Ticket, need: int | None = None, until: float | None = None) -> Inbox:
        """Return the inbox, in the order of ids; raise PeerTimeout or PeerLost with the peer's name.

        With `need` or `until` it may lack messages: it is returned when so many have arrived, or at that
        time by time.monotonic(). Waiting again for the same ticket returns the others as well.
        """
        start = time.monotonic()
        arrived = self.collect(ticket, need, until)
        self.waited += time.monotonic() - start
        for j, data in arrived.items():
            if j not in ticket.arrived:
                self.received[j] += data.numel()
        ticket.arrived = {j: arrived[j] for j in sorted(arrived)}
        return ticket.phase.inbox(ticket.arrived)

    def poll(self, ticket: Ticket) -> bool:
        """Return whether `wait` would return at once with everything."""
        return len(self.wait(ticket, until=time.monotonic())) == len(ticket.phase.expect)

    def configure(self, view: View) -> None:
        """Learn, between two rounds, who takes part from now on."""
        unknown = [j for j in view.members if j not in self.everybody]
        if unknown:
            raise ValueError(f"workers {unknown} are not in this group of {self.size}, which cannot grow")

    @abstractmethod
    def begin(self, outbox: Mapping[int, Tensor], sizes: Mapping[int, int], ticket: Ticket) -> Any:  # noqa: ANN401
        """Begin to send these bytes and to receive so many; return what `collect` needs, at once."""

    @abstractmethod
    def collect(self, ticket: Ticket, need: int | None, until: float | None) -> Mapping[int, Tensor]:
        """Return what has arrived: all of it, unless `need` or `until` ask for less."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect. Idempotent."""

    def fail(self, reason: str) -> None:  # noqa: B027 - not every transport can
        """Report to the others why this worker stops; an empty reason withdraws the report."""


class Alone(Transport):
    """The transport of a single worker: there is nobody to talk to."""

    def __init__(self) -> None:
        super().__init__(rank=0, size=1, deadline=0.0)

    def begin(self, outbox: Mapping[int, Tensor], sizes: Mapping[int, int], ticket: Ticket) -> None:
        """Send nothing."""
        if outbox or sizes:
            raise WireError(f"{ticket.name}: a single worker has no peers, not {sorted({*outbox, *sizes})}")

    def collect(self, ticket: Ticket, need: int | None, until: float | None) -> Mapping[int, Tensor]:
        """Receive nothing."""
        return {}

    def close(self) -> None:
        """Stay alone."""
