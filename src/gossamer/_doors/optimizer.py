"""The wrapper around a torch optimizer: `step()` also talks to the neighbours."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from gossamer._node.agreement import require_same
from gossamer._node.buckets import Bucket
from gossamer._node.buffers import Buffers
from gossamer._node.exchanges import Exchanges
from gossamer._node.guards import ModelGuard
from gossamer._node.inner import InnerStep
from gossamer._node.interrupts import catching
from gossamer._node.node import Node
from gossamer._node.shown import ShownModel, remind_of_consensus
from gossamer._node.sketch import sketch
from gossamer._node.stamps import RoundStamps
from gossamer.algorithms import Algorithm
from gossamer.topology import Schedule, Topology, rounds_to_reach_all
from gossamer.transport import Flight, Transport, agree


class DecentralizedOptimizer(Optimizer):
    """A torch optimizer whose steps are rounds of a decentralized algorithm. Made by `decentralize`.

    Every worker must call `step`, `consensus`, `consensus_distance` and `mean` equally often: they
    exchange messages. Schedulers, closures, clipping, param groups and checkpoints work as with
    the optimizer inside.
    """

    def __init__(
        self,
        inner: Optimizer,
        buckets: list[Bucket],
        guard: ModelGuard,
        buffers: Buffers,
        algorithm: Algorithm,
        topology: Topology | Schedule,
        transport: Transport,
        *,
        common_start: bool,
        every: int,
        seed: int,
        overlap: int,
        settings: dict[str, str],
    ) -> None:
        super().__init__(inner.param_groups, inner.defaults)
        self._inner, self._guard, self._buffers = inner, guard, buffers
        self._share()
        self.algorithm, self.topology, self.transport, self.overlap = algorithm, topology, transport, overlap
        self._seed, self._settings = seed, settings
        self._exchanges = Exchanges(transport)
        self._loaded: list[Tensor] = []  # the parameters of a checkpoint, until the next step
        self._flight: Flight | None = None
        self._stamps = RoundStamps(
            transport.rank, lambda: self.param_groups, lambda: self.rounds, self._rounds_to_reach_all
        )
        self._step_inner = InnerStep(inner, one_gradient=algorithm.averages_gradients(every))
        self._node = Node(
            transport.rank,
            buckets,
            partial(self._step_inner, with_closure=len(buckets) == 1),
            algorithm,
            topology,
            common_start=common_start,
            may_resume=True,
            every=every,
            overlap=overlap,
            seed=seed,
        )
        self._shown = ShownModel(self._node, buffers)
        self._at_the_end: weakref.finalize[..., Any] | None = None
        if transport.size > 1 and not algorithm.reaches_all:
            self._at_the_end = weakref.finalize(
                self, remind_of_consensus, self._shown, self._node, self._exchanges, self._stamps.stopping
            )

    @property
    def rounds(self) -> int:
        """Return the number of rounds done."""
        return self._node.rounds

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

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Do the optimizer's step and the algorithm's round."""
        self._exchanges.require_sound()
        self._refuse_in_consensus("step()")
        self._check_model()
        loss = self._step_inner.evaluate(closure)
        with self._exchanges.watched():
            self._begin_if_possible()  # nothing is under way after a start
            if self._node.next_step_exchanges:
                flight, self._flight = self._flight or self._begin(), None
                self.sent.update(flight.finish())
            else:
                self._node.local_step()
            self._begin_if_possible()
        return loss

    @contextmanager
    def consensus(self) -> Iterator[None]:
        """Put the exact average of all workers' models in place of this worker's, for a while.

        All workers enter together; inside, it may be entered again at no cost. BatchNorm statistics are
        averaged too, unless buffers="local". It sends 8 d (n-1)/n bytes per worker for d float32 parameters.
        """
        self._exchanges.require_sound()
        if self._shown.is_other:
            yield
            return
        self._node.take_back()
        # all of it before anything is changed, so that a failure on the way leaves the model alone
        parameters, buffers = ([self._exchanges.average(v) for v in part] for part in self._shown.read())
        with self._shown.showing((parameters, buffers)):
            yield

    @torch.no_grad()
    def consensus_distance(self, *, estimate: bool = False) -> float:
        """Return sqrt(1/n sum_i |x_i - average|^2) over all workers' models. All workers call it.

        It sends as much as `consensus`; with `estimate` 64 numbers in place of every model, which tell
        the distance to about 10 %.
        """
        self._exchanges.require_sound()
        self._refuse_in_consensus("consensus_distance()")
        xs = self._node.read()
        return self._exchanges.distance([sketch(xs, self._seed)] if estimate else xs)

    def mean(self, value: float) -> float:
        """Return the average of a number over all workers, the same bits everywhere. All workers call it."""
        self._exchanges.require_sound()
        if isinstance(value, Tensor) and value.numel() != 1:
            raise ValueError(f"mean() averages one number, not a tensor of shape {tuple(value.shape)}")
        return self._exchanges.mean(value)

    def any_worker(self, flag: bool) -> bool:
        """Return whether it is true on any worker. All workers call it; it counts as training."""
        self._exchanges.require_sound()
        return self._exchanges.any(flag)

    def catching_interrupts(self) -> AbstractContextManager[Callable[[], bool]]:
        """Turn Ctrl-C and SIGTERM on any worker into an answer that all get after the same step.

            with optimizer.catching_interrupts() as interrupted:
                for x, y in batches:
                    ...
                    optimizer.step()
                    if interrupted():
                        save()
                        break

        The wish travels with the rounds' messages. A second Ctrl-C stops at once.
        """
        return catching(self._stamps, self.transport.size)

    def state_dict(self) -> dict[str, Any]:
        """Return the inner optimizer's state, with all that this worker has of its own under "gossamer".

        That includes the model's parameters and buffers as they are in training, also inside
        consensus(). A round that is under way is not part of it: it has changed nothing yet and will
        be started again, with the same messages.
        """
        with self._shown.as_in_training():
            own = self._node.state_dict() | {"buffers": self._buffers.dump()}
        own |= {"settings": self._settings, "sent": dict(self.sent)}
        own["consensus_sent"] = dict(self._exchanges.consensus_sent)
        return {**self._inner.state_dict(), "gossamer": own}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up a checkpoint, the model's parameters and buffers included."""
        self._refuse_in_consensus("load_state_dict()")
        if "gossamer" not in state_dict:
            raise ValueError("this is the state of a plain optimizer; load it before gossamer.decentralize")
        inner = dict(state_dict)
        own = inner.pop("gossamer")
        require_same(own["settings"], self._settings)
        if self._exchanges.broken is None:
            self._abandon()
        self._node.load_state_dict(own)
        self._buffers.load(own.get("buffers", {}))
        self._inner.load_state_dict(inner)
        self._share()
        for name in ("sent", "consensus_sent"):
            counter = getattr(self._exchanges, name)
            counter.clear()
            counter.update(own.get(name, {}))
        self._loaded = own.get("parameters", [])
        self._flight = None
        self._exchanges.begin_anew()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients."""
        self._stamps.zero_grads += not self._step_inner.in_closure
        self._inner.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse: what is exchanged is agreed on at the start."""
        if hasattr(self, "_node"):
            raise ValueError(
                "add parameter groups before gossamer.decentralize: all workers agreed on a layout"
            )
        super().add_param_group(param_group)

    def close(self) -> None:
        """Receive what is still under way and leave. Idempotent."""
        self._abandon()
        self.transport.close()
        if self._at_the_end is not None:
            self._at_the_end.detach()

    def _begin(self) -> Flight:
        return Flight(self._node.exchange(), self.transport, f"round {self.rounds + 1}", self._stamps)

    def _begin_if_possible(self) -> None:
        if self._flight is None and self._node.next_round_may_begin:
            self._flight = self._begin()

    def _abandon(self) -> None:
        if self._flight is not None:
            self._flight.abandon()
            self._flight = None

    def _refuse_in_consensus(self, call: str) -> None:
        if self._shown.is_other:
            raise ValueError(f"{call} inside consensus() would be about the average model; leave it first")

    def _check_model(self) -> None:
        """Notice before a step what was done to the model since the last one."""
        self._node.require_start()
        self._guard.check(first=self._node.steps == 0)
        self._node.take_back()
        if self._loaded:
            self._guard.require_values(self._node.groups, self._loaded)
            self._loaded = []
        resting = self._guard.resting
        if resting != self._node.resting:
            self._let_rest(resting)

    def _let_rest(self, names: frozenset[str]) -> None:
        """Stop exchanging layers that were frozen, and go on with those that were unfrozen again."""
        with self._exchanges.watched():
            agree(self.transport, {"frozen parameters": ", ".join(sorted(names)) or "none"}, "freezing")
            self._abandon()
            self._node.let_rest(names)

    def _share(self) -> None:
        """Let both optimizers have one set of groups and state, so that schedulers reach the inner one."""
        self.param_groups, self.state = self._inner.param_groups, self._inner.state

    def _rounds_to_reach_all(self, t: int) -> int:
        if self.algorithm.reaches_all:  # one after the other, at worst
            return self.transport.size - 1
        return rounds_to_reach_all(self.topology, self.transport.rank, t)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "a decentralized optimizer holds connections; save its state_dict() instead of copying it"
        )
