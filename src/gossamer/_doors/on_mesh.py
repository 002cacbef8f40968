"""A worker's rounds over a mesh, put together: its node, what it knows of neighbours, its whole model."""

from __future__ import annotations

from collections.abc import Callable

from gossamer._doors.starting import Started
from gossamer._mesh.rounds import EdgeRounds
from gossamer._mesh.transport import MeshTransport
from gossamer._mesh.wiring import Graph
from gossamer._node.knowledge import NodeKnowledge
from gossamer._node.node import Node
from gossamer._node.whole import WholeModel
from gossamer.transport import Transport


def mesh_rounds(
    transport: Transport, started: Started, whole: WholeModel, graphs: Graph
) -> Callable[[Node], EdgeRounds] | None:
    """Return what makes a node's rounds; None for a transport whose workers stay the same."""
    if not isinstance(transport, MeshTransport) or started.algorithm.reaches_all:
        return None

    def begin(node: Node) -> EdgeRounds:
        gamma = getattr(started.algorithm, "gamma", None)
        knowledge = NodeKnowledge(node, whole, {"gamma": gamma})
        rounds = EdgeRounds(transport, node, knowledge, graphs)
        node.skip_to(started.steps)
        if started.copy is not None and started.copy.numel():
            knowledge.become(started.copy)
        if started.how == "found":
            rounds.found()
        else:
            rounds.begin_anew()
        return rounds

    return begin
