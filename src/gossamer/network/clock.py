"""How long a run takes on a network: every worker's time, advanced by its work and its messages.

The model, per message from i to j:

- **Start.** At t_i, when i posts it; with rendezvous not before the notice that j posted at t_j
  has arrived, max(t_i, t_j + latency_ji).
- **Uplink.** All messages in flight from i share its bandwidth equally, as TCP connections do, up to
  a pair's own limit; what one cannot use goes to the others. So a straggler delays the messages that go
  to it and no others, and nothing depends on how workers are numbered.
- **Downlink.** The bits arrive a latency later and queue for j's downlink. They pass while they arrive,
  so that bandwidth is not paid twice. What the downlink cannot take waits in the network: it does not
  hold up the sender. Bits of a phase pass after those of the phase before.
- **End.** A worker continues when its own last bit has left and all that it expects has arrived.

From given starts, more bytes and less bandwidth up or down never make any worker faster. A message that
starts later or has a lower limit can, here as on real links: the sender's other messages get its share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from gossamer.network.links import Network
from gossamer.rounds.cadence import Cadence
from gossamer.rounds.phase import Traffic

Piece = tuple[float, float, float]  # start, end, and the bits that pass in between at an even rate


class Clock:
    """The times of n workers in seconds, from 0."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._times = [0.0] * network.n
        self._drained = [0.0] * network.n  # when the last phase's bits had passed each downlink
        self._published: list[float] = []  # when each worker had the model that its next messages describe

    @property
    def times(self) -> list[float]:
        """Return how far each worker is."""
        return list(self._times)

    @property
    def now(self) -> float:
        """Return how far the last worker is."""
        return max(self._times)

    def state(self) -> dict[str, list[Any]]:
        """Return what a checkpoint must hold for the clock to resume."""
        return {"times": list(self._times), "drained": list(self._drained), "published": self._published}

    def load_state(self, state: dict[str, list[Any]]) -> None:
        """Resume from a saved state."""
        self._times, self._drained = list(state["times"]), list(state["drained"])
        published = state.get("published")  # an older version's checkpoint has none
        self._published = list(published or self._times)

    def compute(self, seconds: float | Sequence[float]) -> None:
        """Let every worker compute: all for the same time, or each for its entry."""
        self._times = self._after(seconds)

    def step(
        self,
        phases: Sequence[Sequence[Traffic]],
        compute: float,
        step: int = 0,
        cadence: Cadence | None = None,
    ) -> None:
        """Let all workers do step number `step`: compute, and exchange if there are phases.

        With overlap the first messages leave when the cadence publishes the model, and travel while workers
        compute.
        """
        cadence = cadence or Cadence()
        if cadence.publishes(step):
            self._published = self._times
        self.compute(compute)
        if not phases:
            return
        if cadence.overlap:
            done, self._times = self._times, self._published
            self.phase(phases[0], [b - a for a, b in zip(self._times, done, strict=True)])
        for sent in phases[1:] if cadence.overlap else phases:
            self.phase(sent)

    def phase(self, phases: Sequence[Traffic], compute: float | Sequence[float] = 0.0) -> None:
        """Let all workers do one phase of messages, while each computes for `compute` seconds.

        A round that computes and then exchanges is compute(s), phase(first), phase(second), ...; one
        whose first messages fly during the gradient is phase(first, s), phase(second), ...
        """
        assert len(phases) == self.network.n, f"{len(phases)} phases for {self.network.n} workers"
        ends = self._after(compute)
        arriving: list[list[Piece]] = [[] for _ in phases]
        for i, phase in enumerate(phases):
            messages = [self._message(i, j, size, phases[j]) for j, size in phase.sent.items()]
            share_out(messages, self.network.up[i])
            for message in messages:
                ends[i] = max(ends[i], message.pieces[-1][1])
                delay = self.network.latency[i][message.to]
                arriving[message.to] += [(a + delay, b + delay, bits) for a, b, bits in message.pieces]
        for j, pieces in enumerate(arriving):
            if pieces:
                rate = self.network.down[j]
                in_turn = self._drained[j] + sum(bits for *_, bits in pieces) / rate
                self._drained[j] = max(in_turn, drained(pieces, rate))
                ends[j] = max(ends[j], self._drained[j])
        self._times = ends

    def _message(self, i: int, j: int, nbytes: int, receiver: Traffic) -> Message:
        assert receiver.expected.get(i) == nbytes, f"worker {j} does not expect {nbytes} bytes from {i}"
        start = self._times[i]
        if self.network.rendezvous:
            start = max(start, self._times[j] + self.network.latency[j][i])
        bits = 8 * nbytes * self.network.overhead
        return Message(j, start, bits, self.network.limits.get((i, j), inf), [(start, start, 0.0)])

    def _after(self, seconds: float | Sequence[float]) -> list[float]:
        each = [seconds] * self.network.n if isinstance(seconds, int | float) else list(seconds)
        if len(each) != self.network.n:
            raise ValueError(
                f"{len(each)} computing times for {self.network.n} workers: give one, or one each"
            )
        for rank, s in enumerate(each):
            if not (isfinite(s) and s >= 0):
                raise ValueError(f"worker {rank} computes for {s} s: a time is finite and not negative")
        return [t + s for t, s in zip(self._times, each, strict=True)]


@dataclass
class Message:
    """A message on an uplink: its start, the bits still to send, its own limit, and when its bits left."""

    to: int
    start: float
    left: float
    limit: float
    pieces: list[Piece]


def share_out(messages: Sequence[Message], rate: float) -> None:
    """Send messages over one uplink, at equal shares, and record when their bits left."""
    starts = sorted({m.start for m in messages}, reverse=True)
    now = starts.pop() if starts else 0.0
    while starts or any(m.left for m in messages):
        under_way = [m for m in messages if m.left and m.start <= now]
        shares = fair(rate, [m.limit for m in under_way])
        until = starts[-1] if starts else inf
        for m, share in zip(under_way, shares, strict=True):
            until = min(until, now + m.left / share)
        for m, share in zip(under_way, shares, strict=True):
            # Same expression as above: the message that set `until` must end with exactly 0 bits left.
            bits = m.left if now + m.left / share <= until else min(m.left, share * (until - now))
            m.pieces.append((now, until, bits))
            m.left -= bits
        now = until
        if starts and starts[-1] == now:
            starts.pop()


def fair(rate: float, limits: Sequence[float]) -> list[float]:
    """Divide a rate equally, except that what a limited message cannot use goes to the others."""
    shares = list(limits)
    remaining = sorted(range(len(limits)), key=limits.__getitem__)
    while remaining and limits[remaining[0]] * len(remaining) < rate:
        rate -= limits[remaining.pop(0)]
    for k in remaining:
        shares[k] = rate / len(remaining)
    return shares


def drained(pieces: Sequence[Piece], rate: float) -> float:
    """Return when the last bit has passed a downlink at which these pieces arrive.

    From any moment s on, the downlink needs the time of all bits that arrive after s: the end is the largest
    s + (bits arriving after s) / rate. Only the start of a piece can be that s.
    """
    end = max(b for _, b, _ in pieces)
    to_come = sum(bits for *_, bits in pieces)
    coming: list[Piece] = []
    for a, b, bits in sorted(pieces):
        coming = [piece for piece in coming if piece[1] > a]
        partly = sum(size * (until - a) / (until - since) for since, until, size in coming)
        end = max(end, a + (to_come + partly) / rate)
        coming.append((a, b, bits))
        to_come -= bits
    return end
