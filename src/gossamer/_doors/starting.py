"""How a worker begins: with all others, who compare settings and start values, or in a run that goes on."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from gossamer._mesh.link import MOST_HELD
from gossamer._mesh.newcomer import meet, receive_model
from gossamer._mesh.transport import MeshTransport
from gossamer._mesh.wiring import Graph
from gossamer._node.agreement import common_start, describe_optimizer
from gossamer._node.buckets import Bucket
from gossamer._node.gamma import with_common_gamma, with_gamma
from gossamer._node.whole import WholeModel
from gossamer.algorithms import Algorithm
from gossamer.errors import PeerError, WireError
from gossamer.topology import Schedule, Topology
from gossamer.transport import START_UP, Transport, agree

log = logging.getLogger("gossamer")

LONGEST = 150  # characters of a setting: members of a mesh compare no more


@dataclass(frozen=True)
class Started:
    """How a worker has begun."""

    how: Literal["found", "join", "resume"]
    algorithm: Algorithm  # with a number for gamma
    common: bool  # all workers have the same values
    steps: int = 0  # done by the others so far
    copy: Tensor | None = None  # what the worker shows from which the model was taken


@dataclass(frozen=True)
class Start:
    """What a worker begins with."""

    optimizer: Optimizer
    trained: Mapping[str, Parameter]
    others: Mapping[str, Tensor]  # parameters that are not trained, and buffers
    buckets: list[Bucket]
    algorithm: Algorithm
    graph: Topology | Schedule
    graphs: Graph
    topology: str  # the kind of graph, of however many workers
    settings: Mapping[str, str]
    broadcast: bool
    seed: int

    def over(self, transport: Transport) -> Started:
        """Begin with the other workers, and wait for them as long as machines take to start."""
        own_deadline = transport.deadline
        transport.deadline = max(transport.deadline, START_UP.total_seconds())
        try:
            if not isinstance(transport, MeshTransport):
                return self._together(transport)
            return self._on_mesh(transport)
        finally:
            transport.deadline = own_deadline

    def _together(self, transport: Transport) -> Started:
        """Compare everything, take worker 0's values, and find gamma."""
        own = describe_optimizer(self.optimizer) | {"broadcast": str(self.broadcast)}
        agree(transport, {**self.settings, **self._untrained(), **own})
        same = common_start(self.buckets, self.others, transport, broadcasts=self.broadcast)
        tuned = with_common_gamma(self.algorithm, self.graph, self._shapes, transport, self.seed)
        return Started("found", tuned, same)

    def _on_mesh(self, transport: MeshTransport) -> Started:
        own = describe_optimizer(self.optimizer)
        own.pop("optimizer.state")  # it changes in training
        everything = {**self.settings, "topology": self.topology, **self._untrained(), **own}
        common = {name: value[:LONGEST] for name, value in everything.items()}
        whole = WholeModel(self.trained, self.others)
        transport.protocol.most_held = max(MOST_HELD, 4 * whole.nbytes)
        if not self.broadcast:
            with transport.sockets.changed:
                transport.protocol.agree_on(common)
            return Started("resume", with_gamma(self.algorithm, self.graph, self._shapes, self.seed), True)
        if transport.protocol.begun:
            raise ValueError("this transport has trained already: make a new one with gossamer.mesh")
        end = time.monotonic() + transport.deadline
        while True:
            try:
                if meet(transport, common, self.graphs, end - time.monotonic()) == "found":
                    with transport.together():
                        return self._together(transport)
                return self._from_others(transport, whole)
            except (PeerError, WireError) as error:  # one was lost on the way
                if time.monotonic() > end:
                    raise
                log.warning("%s Beginning again.", error)
                transport.begin_anew(member.id for member in transport.members)

    def _from_others(self, transport: MeshTransport, whole: WholeModel) -> Started:
        """Take the model of those that train already."""
        model, about = receive_model(transport, whole.nbytes, transport.deadline)
        whole.write(model[: whole.nbytes])
        for bucket in self.buckets:
            bucket.take_back()
        algorithm = self.algorithm
        if getattr(algorithm, "gamma", None) == "auto":
            algorithm = replace(algorithm, gamma=float(about["gamma"]))  # type: ignore[type-var]
        return Started("join", algorithm, True, int(about["steps"]), model[whole.nbytes :])

    @property
    def _shapes(self) -> list[tuple[int, ...]]:
        return [tuple(p.shape) for p in self.trained.values()]

    def _untrained(self) -> dict[str, str]:
        return {f"state.{name}": f"{tuple(t.shape)} {t.dtype}" for name, t in self.others.items()}
