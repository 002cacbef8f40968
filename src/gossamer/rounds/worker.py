"""All that an algorithm may see of the world: no process group, no socket, no clock.

A round is a generator. It yields what it asks for: a step of the user's optimizer, or an exchange, for
which it is sent what arrived:

    yield worker.step()
    inbox = yield worker.exchange(message)

Drivers run rounds: the simulation in one process, the distributed one over a transport.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer._random import generator
from gossamer.compress import Compressor
from gossamer.compress.layout import Layout
from gossamer.compress.wire import Message
from gossamer.rounds.phase import STEP, Inbox, Phase, Step, blame
from gossamer.rounds.view import View


@dataclass
class Worker:
    """One worker, as an algorithm sees it; of a model with several dtypes, one bucket of it."""

    id: int  # stable, not a position in a list of workers
    view: View  # who takes part; the driver may replace it between two rounds
    layout: Layout
    x: Tensor  # the flat parameters; algorithms change them in place
    gradient: Callable[[], Tensor]  # the flat gradient ...
    set_gradient: Callable[[Tensor], None]  # ... and how to replace it before a step
    common_start: bool  # all workers start from the same x
    seed: int = 0
    every: int = 1  # optimizer steps per round
    t: int = 0  # rounds done
    bucket: int = 0  # which of the model's buckets this is

    @property
    def n(self) -> int:
        """Return the number of workers."""
        return self.view.n

    @property
    def weights(self) -> dict[int, float]:
        """Return this worker's row of this round's W, by id, in order, its own weight included."""
        return self.view.weights(self.id, self.t)

    @property
    def neighbours(self) -> tuple[int, ...]:
        """Return the workers that send to this one in this round."""
        return self.view.senders(self.id, self.t)

    def round_of(self, j: int) -> int:
        """Return the round of a neighbour: this worker's, unless workers come and go."""
        return self.view.round_of(j, self.t)

    def step(self) -> Step:
        """Ask for x += u, the step of the user's own torch optimizer at the present gradients."""
        return STEP

    def update(self) -> Generator[Phase | Step, Inbox, Tensor]:
        """Return u, the step that the optimizer makes, and leave x as it was."""
        before = self.x.clone()
        yield STEP
        u = self.x - before
        self.x.copy_(before)
        return u

    def zeros(self) -> Tensor:
        """Return a zero vector for a state: float32 at least, since a state adds up many small changes."""
        return torch.zeros_like(self.x, dtype=self.layout.scalar_dtype)

    def encode(self, compressor: Compressor, v: Tensor, name: str = "") -> Message:
        """Return C(v) as a message, with this worker's randomness of this round.

        Messages of different names draw from different randomness, and so do different buckets.
        """
        more = (self.bucket, name) if self.bucket or name else ()
        rng = generator(self.seed, "noise", self.t, self.id, *more)
        own = compressor.at(self.id, self.t)
        message = own.message(v.to(self.layout.dtype), self.layout, rng)
        message.name = name
        message.size_from = lambda j: compressor.at(j, self.t).nbytes(self.layout)
        return message

    def exchange(self, *messages: Message) -> Phase:
        """Send messages with different names to all neighbours, and expect theirs of the same names."""
        named = {message.name: message for message in messages}
        assert len(named) == len(messages), "messages of one name would draw from the same randomness"
        expect = {j: {name: m.size_from(j) for name, m in named.items()} for j in self.neighbours}
        return Phase(dict.fromkeys(self.view.receivers(self.id, self.t), named), expect)

    def add(self, compressor: Compressor, into: Tensor, own: Message, weight: float = 1.0) -> None:
        """Do into += weight * C(v_i) for this worker's own message."""
        compressor.at(self.id, self.t).add(into, own, self.layout, weight)

    def add_from(
        self, compressor: Compressor, into: Tensor, j: int, message: Tensor, weight: float = 1.0
    ) -> None:
        """Do into += weight * C(v_j) for a neighbour's message."""
        with blame(j):
            compressor.at(j, self.round_of(j)).add(into, message, self.layout, weight)

    def add_weighted(
        self, compressor: Compressor, into: Tensor, own: Message, inbox: Inbox, scale: float = 1.0
    ) -> None:
        """Do into += scale * sum_j w_ij C(v_j), own message included."""
        self._sum(compressor, into, own, inbox, {j: scale * w for j, w in self.weights.items()})

    def add_disagreement(self, compressor: Compressor, into: Tensor, own: Message, inbox: Inbox) -> None:
        """Do into += sum_j w_ij C(v_j) - C(v_i)."""
        row = self.weights
        self._sum(compressor, into, own, inbox, {**row, self.id: row[self.id] - 1.0})

    def _sum(
        self, compressor: Compressor, into: Tensor, own: Message, inbox: Inbox, weights: dict[int, float]
    ) -> None:
        """Add messages of one name up, always in the order of ids."""
        for j, w in weights.items():
            if j == self.id:
                self.add(compressor, into, own, w)
            else:
                self.add_from(compressor, into, j, inbox[j][own.name], w)
