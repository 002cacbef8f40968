"""The wrapper around a torch optimizer: `step()` also talks to the neighbours."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from gossamer._doors.observed import ObservedOptimizer
from gossamer._mesh.rounds import EdgeFlight, EdgeRounds
from gossamer._mesh.transport import MeshTransport
from gossamer._node.buckets import Bucket
from gossamer._node.buffers import Buffers
from gossamer._node.checkpoint import joined_state, take_apart
from gossamer._node.exchanges import Exchanges
from gossamer._node.guards import ModelGuard
from gossamer._node.inner import InnerStep
from gossamer._node.node import Node
from gossamer._node.on_mesh import MeshExchanges
from gossamer._node.shown import ShownModel, remind_of_consensus
from gossamer._node.stamps import RoundStamps
from gossamer.algorithms import Algorithm
from gossamer.rounds.view import LocalView, View
from gossamer.topology import Schedule, Topology, rounds_to_reach_all
from gossamer.transport import Flight, Transport, agree


class DecentralizedOptimizer(ObservedOptimizer):
    """A torch optimizer whose steps are rounds of a decentralized algorithm. Made by `decentralize`.

    Every worker must call `step`, `consensus`, `consensus_distance` and `mean` equally often: they
    exchange messages. Schedulers, closures, clipping, param groups and checkpoints work as with
    the optimizer inside.

    Example:
        >>> import torch, gossamer
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = gossamer.decentralize(optimizer, model, algorithm="dpsgd")
        >>> scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
        >>> model(torch.ones(1, 4)).sum().backward()
        >>> _ = optimizer.step()
        >>> scheduler.step()
        >>> optimizer.rounds, optimizer.rank, sorted(optimizer.state_dict())
        (1, 0, ['gossamer', 'param_groups', 'state'])
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
        mesh: Callable[[Node], EdgeRounds] | None = None,
    ) -> None:
        super().__init__(inner.param_groups, inner.defaults)
        self._inner, self._guard, self._buffers = inner, guard, buffers
        self._share()
        self.algorithm, self.topology, self.transport, self.overlap = algorithm, topology, transport, overlap
        self._seed, self._settings = seed, settings
        on_mesh = isinstance(transport, MeshTransport) and not algorithm.reaches_all
        self._exchanges = MeshExchanges(transport) if on_mesh else Exchanges(transport)
        self._loaded: list[Tensor] = []  # the parameters of a checkpoint, until the next step
        self._flight: Flight | EdgeFlight | None = None
        self._stamps = RoundStamps(
            transport.rank, lambda: self.param_groups, lambda: self.rounds, self._rounds_to_reach_all
        )
        self._step_inner = InnerStep(inner, one_gradient=algorithm.averages_gradients(every))
        self._node = Node(
            transport.rank,
            buckets,
            self._step_inner,
            algorithm,
            self._first_view(),
            common_start=common_start,
            may_resume=True,
            every=every,
            overlap=overlap,
            seed=seed,
        )
        self._shown = ShownModel(self._node, buffers)
        self._edges = None if mesh is None else mesh(self._node)  # where edges come and go
        self._at_the_end: weakref.finalize[..., Any] | None = None
        if transport.size > 1 and not algorithm.reaches_all:
            self._at_the_end = weakref.finalize(
                self, remind_of_consensus, self._shown, self._node, self._exchanges, self._stamps.stopping
            )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Do the optimizer's step and the algorithm's round. All workers call it equally often.

        Args:
            closure: Computes the loss anew, for optimizers such as LBFGS.

        Returns:
            What the closure returned, or None.

        Raises:
            PeerTimeout: A peer stayed silent for `deadline` seconds.
            PeerLost: The connection to a peer broke.
            MismatchError: The learning rates of two neighbours differ.
            Diverged: Parameters are no longer finite.
            ValueError: The model was replaced, moved or wrapped since the last step.
        """
        self._exchanges.require_sound()
        self._refuse_in_consensus("step()")
        self._check_model()
        loss = self._step_inner.evaluate(closure)
        with self._exchanges.watched():
            self._begin_if_possible()  # the first step, or the first after loading: no round is in flight yet
            if self._node.cadence.exchanges(self._node.steps):
                flight, self._flight = self._flight or self._begin(), None
                self.sent.update(flight.finish())
            else:
                self._node.local_step()
            self._begin_if_possible()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """Return the inner optimizer's state, and everything else that this worker has under "gossamer".

        That includes the model's parameters and buffers as they are in training, also inside
        consensus(). A round in flight is not part of it: it has changed nothing yet and will be
        started again, with the same messages.

        Returns:
            What `torch.save` can write. Every worker saves its own.
        """
        with self._shown.as_in_training():
            own = self._node.state_dict() | {"buffers": self._buffers.dump()}
        own |= {"settings": self._settings, "sent": dict(self.sent)}
        own["consensus_sent"] = dict(self._exchanges.consensus_sent)
        return joined_state(self._inner, own)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume from a checkpoint, the model's parameters and buffers included.

        Args:
            state_dict: What `state_dict` returned on the worker of the same rank.

        Raises:
            ValueError: It is a plain optimizer's state, or the settings have changed since.
        """
        self._refuse_in_consensus("load_state_dict()")
        inner, own = take_apart(state_dict, self._settings)
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
        if self._edges is not None:
            self._edges.begin_anew()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients.

        Args:
            set_to_none: As in torch.
        """
        self._stamps.zero_grads += not self._step_inner.in_closure
        self._inner.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse: what is exchanged is agreed on at the start.

        Args:
            param_group: Give it to the optimizer before `decentralize`.
        """
        if hasattr(self, "_node"):
            raise ValueError(
                "add parameter groups before gossamer.decentralize: all workers agreed on a layout"
            )
        super().add_param_group(param_group)

    def close(self) -> None:
        """Receive the messages still in flight and disconnect. Idempotent."""
        self._abandon()
        self.transport.close()
        if self._at_the_end is not None:
            self._at_the_end.detach()

    def _first_view(self) -> View:
        """Return who takes part; on a mesh, edges come with the first round."""
        if isinstance(self._exchanges, MeshExchanges):
            return LocalView.alone(self.transport.rank)
        return View(tuple(self.transport.everybody), self.topology)

    def _begin(self) -> Flight | EdgeFlight:
        if self._edges is not None:
            return self._edges.begin()
        return Flight(self._node.exchange(), self.transport, f"round {self.rounds + 1}", self._stamps)

    def _begin_if_possible(self) -> None:
        if self._flight is None and self._node.cadence.may_fly(self._node.steps):
            self._flight = self._begin()

    def _abandon(self) -> None:
        if self._flight is not None:
            self._flight.abandon()
            self._flight = None

    def _check_model(self) -> None:
        """Check before a step what was done to the model since the last one."""
        self._node.require_start()
        self._guard.check(first=self._node.steps == 0)
        self._node.take_back()
        if self._loaded:
            self._guard.require_values(self._node.groups, self._loaded)
            self._loaded = []
        frozen = self._guard.frozen_since
        if frozen != self._node.frozen:
            self._freeze(frozen)

    def _freeze(self, names: frozenset[str]) -> None:
        """Stop exchanging layers that were frozen, and resume with layers that were unfrozen again."""
        with self._exchanges.watched():
            agree(self.transport, {"frozen parameters": ", ".join(sorted(names)) or "none"}, "freezing")
            self._abandon()
            self._node.freeze(names)

    def _share(self) -> None:
        """Give both optimizers the same groups and state, so that schedulers reach the inner one."""
        self.param_groups, self.state = self._inner.param_groups, self._inner.state

    def _rounds_to_reach_all(self, t: int) -> int:
        if self.algorithm.reaches_all:  # at worst along the ring, one more worker per round
            return self.transport.size - 1
        return rounds_to_reach_all(self.topology, self.transport.rank, t)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "a decentralized optimizer holds connections; save its state_dict() instead of copying it"
        )
