"""What one worker knows of its neighbours, for a network whose edges come and go."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from gossamer._node.node import Node
from gossamer._node.whole import WholeModel
from gossamer.algorithms import Algorithm
from gossamer.algorithms.base import NeighbourMemory
from gossamer.compress.wire import as_bytes, from_bytes
from gossamer.rounds.drive import part_of
from gossamer.rounds.worker import Worker
from gossamer.topology import Schedule, Topology


class NodeKnowledge:
    """The states of all buckets of a node, which meet and part from neighbours together."""

    def __init__(self, node: Node, whole: WholeModel, about: Mapping[str, Any]) -> None:
        self._node, self._whole, self._about = node, whole, about

    @property
    def keeps_copies(self) -> bool:
        """Whether something is kept of each neighbour that can be used again when it is late."""
        return bool(self._copies())

    def model(self) -> tuple[Tensor, dict[str, Any]]:
        """Return a copy of the whole model for a newcomer, and what it must know beside it."""
        model, copy = self._whole.read(), self.copy()
        everything = model if copy is None else torch.cat([model, copy])
        return everything, {**self._about, "steps": self._node.steps, "nbytes": everything.numel()}

    def become(self, copy: Tensor) -> None:
        """Show what another worker shows, whose model this one has taken."""
        copies = self._read(copy)
        self._each(lambda i, memory, worker: memory.become(worker, copies[i]))

    def forget(self) -> None:
        """Forget all neighbours."""
        for memory, worker in self._memories().values():
            for j in memory.known(worker):
                memory.part(worker, j)

    def copy(self) -> Tensor | None:
        """Return what a new neighbour must know of this worker, as bytes; None if it is nothing."""
        copies = [copy for _, _, copy in self._copies()]
        return torch.cat([as_bytes(copy) for copy in copies]) if copies else None

    def meet(self, peer: int, copy: Tensor | None) -> None:
        """Begin to know a neighbour; without a copy, both have the values of the common start."""
        copies = {} if copy is None else self._read(copy)
        self._each(lambda i, memory, worker: memory.meet(worker, peer, copies.get(i)))

    def part(self, peer: int) -> None:
        """Forget a neighbour."""
        self._each(lambda i, memory, worker: memory.part(worker, peer))

    def catch_up(self, peer: int, messages: Mapping[str, Tensor]) -> None:
        """Take the messages of an earlier round."""
        C = getattr(self._node.algorithm, "compressor", None)
        count = len(self._node.states)
        for i, (memory, worker) in self._memories().items():
            own = messages if count == 1 else part_of(messages, i)
            memory.catch_up(worker, C, peer, own)  # type: ignore[arg-type]  # those with copies compress

    def digests(self, peer: int) -> tuple[bytes, bytes] | None:
        """Return digests of what the peer should believe of this worker, and of what is believed of it."""
        pairs = [memory.believed(worker, peer) for memory, worker in self._memories().values()]
        if not any(shown for shown, _ in pairs):
            return None
        return _digest(v for shown, _ in pairs for v in shown), _digest(v for _, held in pairs for v in held)

    def _read(self, copy: Tensor) -> dict[int, Tensor]:
        """Return the buckets' parts of a copy, by the bucket's number."""
        copies, at = {}, 0
        for i, _, own in self._copies():
            nbytes = own.numel() * own.dtype.itemsize
            copies[i] = from_bytes(copy[at : at + nbytes], own.dtype).clone().to(own.device)
            at += nbytes
        return copies

    def _each(self, action: Callable[[int, NeighbourMemory, Worker], Any]) -> None:
        with torch.no_grad():
            for i, (memory, worker) in self._memories().items():
                action(i, memory, worker)

    def _memories(self) -> dict[int, tuple[NeighbourMemory, Worker]]:
        pairs = enumerate(zip(self._node.states, self._node.workers, strict=True))
        return {i: (state, worker) for i, (state, worker) in pairs if isinstance(state, NeighbourMemory)}

    def _copies(self) -> list[tuple[int, NeighbourMemory, Tensor]]:
        found = [(i, memory, memory.copy(worker)) for i, (memory, worker) in self._memories().items()]
        return [(i, memory, copy) for i, memory, copy in found if copy is not None]


def _digest(vectors: Iterable[Tensor]) -> bytes:
    digest = hashlib.blake2b(digest_size=8)
    for v in vectors:
        digest.update(as_bytes(v).numpy().data)
    return digest.digest()


def for_mesh(algorithm: Algorithm, graph: Topology | Schedule, *, lags: bool) -> Algorithm:
    """Return the algorithm as it runs on a mesh, where messages may be late or not, or raise a ValueError."""
    if lags and algorithm.in_step:
        raise ValueError(
            f"{type(algorithm).__name__} needs both ends of an edge in the same round: use wait='all' with it"
        )
    if graph.varying or graph.directed:
        raise ValueError(
            f"on a mesh, edges change as workers come and go; '{graph.name}' changes by itself or has edges "
            f"of one direction: use ring, torus, exponential or another constant, undirected graph"
        )
    return algorithm.where_edges_change()
