"""The wrapper around a torch optimizer: `step()` also talks to the neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from gossamer.algorithms import Algorithm, AllReduce
from gossamer.buffers import Buffers
from gossamer.collectives import ring_mean, summable
from gossamer.errors import GossamerError
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
        overlap: int,
        settings: dict[str, str],
    ) -> None:
        super().__init__(inner.param_groups, inner.defaults)
        self._inner = inner
        self._share()
        self._frozen, self._buffers = frozen, buffers
        self.algorithm, self.topology, self.transport, self.overlap = algorithm, topology, transport, overlap
        self._settings = settings
        self._broken: str | None = None
        self._in_consensus = False
        self._closure: Callable[[], float | None] | None = None
        self._flight: Flight | None = None
        self.sent: Counter[int] = Counter()  # by peer, in training; `transport.sent` counts everything
        self._member = Member(
            transport.rank,
            flats,
            self._inner_step,
            algorithm,
            topology,
            common_start=True,
            every=every,
            overlap=overlap,
            seed=seed,
        )

    @property
    def rounds(self) -> int:
        """Return the number of rounds done."""
        return self._member.rounds

    @property
    def bytes_sent(self) -> int:
        """Return the bytes that this worker's rounds of training have sent."""
        return self.sent.total()

    @property
    def rank(self) -> int:
        """Return this worker's rank."""
        return self.transport.rank

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Do the optimizer's step and the algorithm's round."""
        self._require_sound()
        if self._in_consensus:
            raise ValueError("step() inside consensus() would be undone at its end; leave it first")
        self._require_still_frozen()
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._closure = closure and self._first_known(loss, closure)
        with self._marked_if_it_fails():
            self._begin_if_possible()  # nothing is under way after a start
            if self._member.next_step_exchanges:
                flight, self._flight = self._flight or self._begin(), None
                self.sent.update(flight.finish())
            else:
                self._member.local_step()
            self._begin_if_possible()
        return loss

    @contextmanager
    def consensus(self) -> Iterator[None]:
        """Put the exact average of all workers' models in place of this worker's, for a while.

        All workers enter together. BatchNorm statistics are averaged too, unless buffers="local".
        """
        self._require_sound()
        own = [flat.x.clone() for flat in self._member.flats]
        own_buffers = self._buffers.read()
        averages = [self._average(x) for x in own]  # of copies: a failure on the way leaves the model alone
        averaged_buffers = [self._average(v) for v in own_buffers]
        self._put(averages, averaged_buffers)
        self._in_consensus = True
        try:
            yield
        finally:
            self._in_consensus = False
            self._put(own, own_buffers)

    @torch.no_grad()
    def consensus_distance(self) -> float:
        """Return sqrt(1/n sum_i |x_i - average|^2) over all workers' models. All workers call it."""
        self._require_sound()
        squared = torch.zeros(1, dtype=torch.float64)
        for flat in self._member.flats:
            squared += (flat.x - self._average(flat.x)).double().square().sum().cpu()
        return float(self._average(squared).sqrt())

    def state_dict(self) -> dict[str, Any]:
        """Return the inner optimizer's state with this worker's algorithm state under "gossamer".

        A round that is under way is not part of it: it has changed nothing yet and will be
        started again, with the same messages.
        """
        own = {**self._member.state_dict(), "settings": self._settings}
        return {**self._inner.state_dict(), "gossamer": own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up a checkpoint; the model's parameters must have been loaded as well."""
        if "gossamer" not in state_dict:
            raise ValueError("this is the state of a plain optimizer; load it before gossamer.decentralize")
        inner = dict(state_dict)
        own = inner.pop("gossamer")
        self._require_same_settings(own["settings"])
        if self._broken is None:
            self._abandon()
        self._member.load_state_dict(own)
        self._inner.load_state_dict(inner)
        self._share()
        self._broken = self._flight = None

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
        return Flight(self._member.exchange(), self.transport, f"round {self.rounds + 1}")

    def _begin_if_possible(self) -> None:
        if self._flight is None and self._member.next_round_may_begin:
            self._flight = self._begin()

    def _abandon(self) -> None:
        if self._flight is not None:
            self._flight.abandon()
            self._flight = None

    @torch.no_grad()
    def _average(self, v: Tensor) -> Tensor:
        """Return the exact average over all workers, summed in float32 at least."""
        total = summable(v)
        with self._marked_if_it_fails():
            run(
                ring_mean(self.transport.rank, self.transport.size, total),
                self.transport,
                "average of all workers",
            )
        return total.to(v.dtype)

    @torch.no_grad()
    def _put(self, xs: list[Tensor], buffers: list[Tensor]) -> None:
        self._member.put(xs)
        self._buffers.write(buffers)

    @contextmanager
    def _marked_if_it_fails(self) -> Iterator[None]:
        """Remember that an exchange broke off: some workers have done more of it than others."""
        try:
            yield
        except BaseException as error:
            self._broken = f"{type(error).__name__}: {error}"
            raise

    def _require_sound(self) -> None:
        if self._broken is not None:
            raise GossamerError(
                f"an earlier exchange broke off ({self._broken}), so workers may no longer agree on what "
                f"they know of each other; start again from a checkpoint"
            )

    def _require_same_settings(self, saved: dict[str, str]) -> None:
        for name in [*saved, *(name for name in self._settings if name not in saved)]:
            then, now = saved.get(name, "nothing"), self._settings.get(name, "nothing")
            if then != now:
                raise ValueError(f"the checkpoint was made with {name} = {then}, this run has {now}")

    def _inner_step(self) -> None:
        if self._closure is None or len(self._member.flats) > 1:
            self._inner.step()
        else:
            self._inner.step(self._closure)  # type: ignore[arg-type]  # a closure may return None

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

    def _first_known(self, loss: float | None, closure: Callable[[], float]) -> Callable[[], float | None]:
        """Return a closure that answers once with the loss already computed, then evaluates again."""
        known = [loss]

        def replay() -> float | None:
            if known:
                return known.pop()
            if isinstance(self.algorithm, AllReduce) and self._member.every == 1:
                raise ValueError(
                    "all-reduce averages one gradient a step, this optimizer evaluates more; use DPSGD"
                )
            return closure()

        return replay

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "a decentralized optimizer holds connections; save its state_dict() instead of copying it"
        )
