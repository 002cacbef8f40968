"""The wrapper around a torch optimizer: `step()` also talks to the neighbours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from gossamer.algorithms import Algorithm
from gossamer.buffers import Buffers
from gossamer.collectives import ring_mean
from gossamer.flat import FlatParameters
from gossamer.member import Member
from gossamer.topology import Schedule, Topology
from gossamer.transport import Flight, Transport, run


class DecentralizedOptimizer(Optimizer):
    """A torch optimizer whose steps are rounds of a decentralized algorithm. Made by `decentralize`.

    Every worker must call `step`, `consensus` and `consensus_distance` equally often: they
    exchange messages. Schedulers, closures, clipping, param groups and checkpoints work as with
    the optimizer inside.
    """

    def __init__(
        self,
        inner: Optimizer,
        flats: list[FlatParameters],
        frozen: dict[str, Parameter],
        buffers: Buffers,
        algorithm: Algorithm,
        topology: Topology | Schedule,
        transport: Transport,
        *,
        every: int,
        seed: int,
        overlap: bool,
    ) -> None:
        super().__init__(inner.param_groups, inner.defaults)
        self._inner = inner
        self._share()
        self._frozen, self._buffers = frozen, buffers
        self.algorithm, self.topology, self.transport, self.overlap = algorithm, topology, transport, overlap
        self._closure: Callable[[], float] | None = None
        self._flight: Flight | None = None
        self.bytes_sent = 0  # by the rounds of training; `transport.sent` counts everything
        self._member = Member(
            transport.rank,
            flats,
            self._inner_step,
            algorithm,
            topology,
            common_start=True,
            every=every,
            seed=seed,
        )

    @property
    def rounds(self) -> int:
        """Return the number of rounds done."""
        return self._member.rounds

    @property
    def rank(self) -> int:
        """Return this worker's rank."""
        return self.transport.rank

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Do the optimizer's step and the algorithm's round."""
        self._require_still_frozen()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._closure = closure and _first_known(loss, closure)
        flight = self._flight or self._begin()
        self._flight = None
        self.bytes_sent += flight.finish()
        if self.overlap and self._member.next_step_exchanges:
            self._flight = self._begin()
        return loss

    @contextmanager
    def consensus(self) -> Iterator[None]:
        """Put the exact average of all workers' models in place of this worker's, for a while.

        All workers enter together. BatchNorm statistics are averaged too, unless buffers="local".
        """
        own = [flat.x.clone() for flat in self._member.flats]
        own_buffers = self._buffers.read()
        with torch.no_grad():
            for flat in self._member.flats:
                self._average(flat.x)
            averaged = [v.clone() for v in own_buffers]
            for v in averaged:
                self._average(v)
            self._buffers.write(averaged)
        try:
            yield
        finally:
            with torch.no_grad():
                for flat, x in zip(self._member.flats, own, strict=True):
                    flat.x.copy_(x)
                self._buffers.write(own_buffers)

    @torch.no_grad()
    def consensus_distance(self) -> float:
        """Return sqrt(1/n sum_i |x_i - average|^2) over all workers' models. All workers call it."""
        squared = torch.zeros(1, dtype=torch.float64)
        for flat in self._member.flats:
            average = flat.x.clone()
            self._average(average)
            squared += (flat.x - average).double().square().sum().cpu()
        self._average(squared)
        return float(squared.sqrt())

    def state_dict(self) -> dict[str, Any]:
        """Return the inner optimizer's state with this worker's algorithm state under "gossamer".

        A round that is under way is not part of it: it has changed nothing yet and will be
        started again, with the same messages.
        """
        return {**self._inner.state_dict(), "gossamer": self._member.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up a checkpoint; the model's parameters must have been loaded as well."""
        if "gossamer" not in state_dict:
            raise ValueError("this is the state of a plain optimizer; load it before gossamer.decentralize")
        self._abandon()
        own = dict(state_dict)
        self._member.load_state_dict(own.pop("gossamer"))
        self._inner.load_state_dict(own)
        self._share()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients."""
        self._inner.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse: what is exchanged is agreed on at the start."""
        if hasattr(self, "_member"):
            raise ValueError(
                "add parameter groups before gossamer.decentralize: all workers agreed on a layout"
            )
        super().add_param_group(param_group)

    def close(self) -> None:
        """Receive what is still under way and leave. Idempotent."""
        self._abandon()
        self.transport.close()

    def _begin(self) -> Flight:
        return Flight(self._member.round(), self.transport, f"round {self.rounds + 1}")

    def _abandon(self) -> None:
        if self._flight is not None:
            self._flight.abandon()
            self._flight = None

    def _average(self, v: Tensor) -> None:
        run(ring_mean(self.transport.rank, self.transport.size, v), self.transport, "average of all workers")

    def _inner_step(self) -> None:
        if self._closure is None or len(self._member.flats) > 1:
            self._inner.step()
        else:
            self._inner.step(self._closure)

    def _share(self) -> None:
        """Let both optimizers have one set of groups and state, so that schedulers reach the inner one."""
        self.param_groups, self.state = self._inner.param_groups, self._inner.state

    def _require_still_frozen(self) -> None:
        for name, p in self._frozen.items():
            if p.requires_grad:
                raise ValueError(
                    f"parameter '{name}' was frozen when the optimizer was wrapped and would now train on "
                    f"this worker alone; unfreeze it first and wrap the optimizer afterwards"
                )


def _first_known(loss: float | None, closure: Callable[[], float]) -> Callable[[], float]:
    """Return a closure that answers once with the loss already computed, then evaluates again."""
    known = [loss]

    def replay() -> float:
        first = known.pop() if known else None
        return first if first is not None else closure()

    return replay
