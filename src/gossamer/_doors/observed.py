"""What can be asked of a decentralized optimizer, beside its steps. Nothing here changes training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor
from torch.optim import Optimizer

from gossamer._mesh.members import Member
from gossamer._mesh.transport import MeshTransport
from gossamer._node.exchanges import Exchanges
from gossamer._node.interrupts import catching
from gossamer._node.node import Node
from gossamer._node.shown import ShownModel
from gossamer._node.sketch import sketch
from gossamer._node.stamps import RoundStamps
from gossamer.transport import Transport


class ObservedOptimizer(Optimizer):
    """Counters, the average model, distances and means; the subclass creates the parts and takes steps."""

    transport: Transport
    _node: Node
    _exchanges: Exchanges
    _shown: ShownModel
    _stamps: RoundStamps
    _seed: int

    @property
    def rounds(self) -> int:
        """Return the number of rounds done."""
        return self._node.rounds

    @property
    def steps(self) -> int:
        """Return the number of optimizer steps done; in a run that one has joined, by the others."""
        return self._node.steps

    @property
    def members(self) -> list[Member]:
        """Return who is there, as far as this worker knows, on a mesh.

        Raises:
            ValueError: The transport is no mesh: its workers stay the same.
        """
        if not isinstance(self.transport, MeshTransport):
            raise ValueError(
                "only a mesh has members that come and go; this transport's workers stay the same"
            )
        return self.transport.members

    @property
    def sent(self) -> Counter[int]:
        """Return the bytes sent in training, by peer; `transport.sent` counts everything."""
        return self._exchanges.sent

    @property
    def bytes_sent(self) -> int:
        """Return the bytes that this worker's rounds of training have sent."""
        return self._exchanges.sent.total()

    @property
    def consensus_bytes_sent(self) -> int:
        """Return the bytes that consensus(), consensus_distance() and mean() have sent."""
        return self._exchanges.consensus_sent.total()

    @property
    def rank(self) -> int:
        """Return this worker's rank."""
        return self.transport.rank

    @contextmanager
    def consensus(self) -> Iterator[None]:
        """Temporarily replace this worker's model by the exact average of all workers' models.

        All workers enter together; inside, it may be entered again at no cost. BatchNorm statistics are
        averaged too, unless buffers="local". It sends 8 d (n-1)/n bytes per worker for d float32 parameters.

        Returns:
            A context manager. When it is left, the model is again this worker's own.

        Raises:
            PeerTimeout: Another worker has not entered within `deadline` seconds.

        Example:
            >>> import torch, gossamer
            >>> model = torch.nn.Linear(4, 2)
            >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            >>> optimizer = gossamer.decentralize(optimizer, model, algorithm="dpsgd")
            >>> with optimizer.consensus():
            ...     predictions = model(torch.ones(3, 4))  # of the average model
            >>> predictions.shape
            torch.Size([3, 2])
        """
        self._exchanges.require_sound()
        if self._shown.is_other:
            yield
            return
        self._node.take_back()
        # receive everything before changing anything, so that a failure leaves the model as it is
        parameters, buffers = (self._exchanges.averages(part) for part in self._shown.read())
        with self._shown.showing((parameters, buffers)):
            yield

    @torch.no_grad()
    def consensus_distance(self, *, estimate: bool = False) -> float:
        """Return how far all workers' models are from their average. All workers call it.

        Args:
            estimate: Send 64 numbers in place of every model, which give the distance to about 10 %.
                Otherwise it sends as much as `consensus`.

        Returns:
            The root mean square, sqrt(1/n sum_i |x_i - average|^2), the same on all workers.

        Raises:
            PeerTimeout: Another worker has not called it within `deadline` seconds.
        """
        self._exchanges.require_sound()
        self._refuse_in_consensus("consensus_distance()")
        xs = [sketch(self._node.read(), self._seed)] if estimate else self._node.read()
        return self._exchanges.distance([xs], [self._exchanges.averages(xs)])

    def mean(self, value: float) -> float:
        """Average a number over all workers, such as a metric that all base a decision on. All call it.

        Args:
            value: This worker's number; a tensor of one entry will do.

        Returns:
            The average, the same bits on all workers.

        Raises:
            ValueError: A tensor of more than one entry.
            PeerTimeout: Another worker has not called it within `deadline` seconds.
        """
        self._exchanges.require_sound()
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"mean() averages one number, not a tensor of shape {tuple(value.shape)}")
        return self._exchanges.mean([value])

    def any_worker(self, flag: bool) -> bool:
        """Return whether something is true on any worker. All workers call it; it counts as training.

        Args:
            flag: Whether it is true on this worker.

        Returns:
            The same on all workers.
        """
        self._exchanges.require_sound()
        return self._exchanges.any(flag)

    def catching_interrupts(self) -> AbstractContextManager[Callable[[], bool]]:
        """Turn Ctrl-C and SIGTERM on any worker into an answer that all get after the same step.

        The request travels with the rounds' messages. A second Ctrl-C stops at once.

        Returns:
            A context manager. It gives a function that returns, after a step, whether it is time to stop.

        Example:
            >>> import torch, gossamer
            >>> model = torch.nn.Linear(4, 2)
            >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            >>> optimizer = gossamer.decentralize(optimizer, model, algorithm="dpsgd")
            >>> with optimizer.catching_interrupts() as interrupted:
            ...     for x in [torch.ones(1, 4)] * 3:
            ...         optimizer.zero_grad()
            ...         model(x).sum().backward()
            ...         _ = optimizer.step()
            ...         if interrupted():  # save here
            ...             break
            >>> optimizer.rounds
            3
        """
        return catching(self._stamps, self.transport.size)

    def _refuse_in_consensus(self, call: str) -> None:
        if self._shown.is_other:
            raise ValueError(f"{call} inside consensus() would be about the average model; leave it first")
