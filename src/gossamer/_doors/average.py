"""Compressed averaging for its own sake: CHOCO-Gossip or PowerGossip to a tolerance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import Parameter

from gossamer import algorithms
from gossamer._node.buckets import make_buckets
from gossamer._node.gamma import with_common_gamma, with_gamma
from gossamer._node.node import Node
from gossamer._node.settings import fingerprint, settings
from gossamer._node.sharded import require_whole
from gossamer._node.sketch import sketch
from gossamer._node.together import InOneProcess, OverTransport, Together
from gossamer.algorithms import Algorithm
from gossamer.compress import Compressor
from gossamer.compress.layout import Layout
from gossamer.topology import Schedule, Topology
from gossamer.topology import make as make_topology
from gossamer.transport import agree, connect

CHECK_EVERY = 10  # rounds between two measurements of the disagreement


@dataclass(frozen=True)
class Averaged:
    """The average as one worker knows it, and what it took.

    Args:
        value: This worker's estimate of the average.
        rounds: Rounds of gossip done.
        bytes_sent: By this worker, measurements of the disagreement included.
        disagreement: The distance to the average that is left, as a fraction of that at the start.
        converged: Whether that is at most the tolerance.
        algorithm: The algorithm with the gamma that was used.

    Example:
        >>> import torch, gossamer
        >>> results = gossamer.simulate_average([torch.zeros(5), torch.ones(5)], algorithm="dpsgd")
        >>> type(results[0]).__name__, results[0].converged
        ('Averaged', True)
    """

    value: Tensor
    rounds: int
    bytes_sent: int
    disagreement: float
    converged: bool
    algorithm: Algorithm


def average(
    tensor: Tensor,
    *,
    topology: str | Topology | Schedule = "ring",
    algorithm: str | Algorithm = "choco",
    compressor: str | Compressor | None = None,
    gamma: float | Literal["auto"] | None = None,
    tolerance: float = 1e-3,
    max_rounds: int = 10_000,
    seed: int = 0,
    deadline: float = 300.0,
    group: dist.ProcessGroup | None = None,
) -> Averaged:
    """Average a tensor over real workers by compressed gossip; every worker calls it.

    Workers meet as in `decentralize`.

    Args:
        tensor: This worker's tensor. It stays as it is.
        topology: Who talks to whom: a name, a `Topology` or a `Schedule`.
        algorithm: "choco", "powergossip", "deepsqueeze" or "dpsgd", or one of these as an object.
        compressor: A name such as "topk:0.01" or a `Compressor`, for algorithms that take one.
        gamma: The consensus step size; found before the first round if left out.
        tolerance: It ends when the root mean square distance to the average is at most this fraction of
            that at the start.
        max_rounds: It also ends after so many rounds.
        seed: Seeds all random draws.
        deadline: Seconds for which a silent peer is waited for.
        group: The processes that take part; the default process group if left out.

    Returns:
        What this worker knows of the average, and what it took.

    Raises:
        ValueError: An algorithm that cannot average, or settings that do not go together.
        MismatchError: Workers were started with different settings. All of them raise it.
        PeerTimeout: A peer stayed silent for `deadline` seconds.

    Example:
        A single worker has its average at once:

        >>> import torch, gossamer
        >>> result = gossamer.average(torch.ones(3), algorithm="choco", compressor="sign")
        >>> result.value, result.rounds, result.bytes_sent
        (tensor([1., 1., 1.]), 0, 0)
    """
    require_whole({"tensor": tensor})
    transport = connect(group, deadline)
    graph = make_topology(topology, transport.size, seed)
    asked = _for_averaging(algorithms.make(algorithm, compressor, gamma=gamma))
    own = {"tolerance": str(tolerance), "max_rounds": str(max_rounds)}
    own["sketch"] = fingerprint([sketch([torch.ones(1000)], seed)])
    agree(transport, settings(asked, graph, [Layout.of({"tensor": tensor})], every=1, seed=seed) | own)
    node = _node(
        transport.rank, tensor, with_common_gamma(asked, graph, [tensor.shape], transport, seed), graph, seed
    )
    return _gossip([node], OverTransport(transport), tolerance, max_rounds, seed)[0]


def simulate_average(
    tensors: Sequence[Tensor],
    *,
    topology: str | Topology | Schedule = "ring",
    algorithm: str | Algorithm = "choco",
    compressor: str | Compressor | None = None,
    gamma: float | Literal["auto"] | None = None,
    tolerance: float = 1e-3,
    max_rounds: int = 10_000,
    seed: int = 0,
) -> list[Averaged]:
    """Do what `average` does with one simulated worker per tensor, in this process.

    Args:
        tensors: One tensor per worker, all of one shape and dtype. They stay as they are.
        topology: Who talks to whom: a name, a `Topology` or a `Schedule`.
        algorithm: "choco", "powergossip", "deepsqueeze" or "dpsgd", or one of these as an object.
        compressor: A name such as "topk:0.01" or a `Compressor`, for algorithms that take one.
        gamma: The consensus step size; found before the first round if left out.
        tolerance: It ends when the root mean square distance to the average is at most this fraction of
            that at the start.
        max_rounds: It also ends after so many rounds.
        seed: Seeds all random draws.

    Returns:
        One result per worker.

    Raises:
        ValueError: Tensors of several shapes, an algorithm that cannot average, or settings that do not
            go together.

    Example:
        >>> import torch, gossamer
        >>> tensors = [torch.full((64, 64), float(rank)) for rank in range(8)]
        >>> results = gossamer.simulate_average(tensors, algorithm="powergossip:2", tolerance=1e-3)
        >>> len(results), results[0].converged
        (8, True)
        >>> bool((results[0].value - 3.5).abs().max() < 0.1)
        True
    """
    graph = make_topology(topology, len(tensors), seed)
    if any(t.shape != tensors[0].shape or t.dtype != tensors[0].dtype for t in tensors):
        raise ValueError("the tensors of all workers must have one shape and dtype")
    asked = _for_averaging(algorithms.make(algorithm, compressor, gamma=gamma))
    chosen = with_gamma(asked, graph, [tensors[0].shape], seed)
    nodes = [_node(rank, t, chosen, graph, seed) for rank, t in enumerate(tensors)]
    return _gossip(nodes, InOneProcess(graph.n), tolerance, max_rounds, seed)


def _for_averaging(algorithm: Algorithm) -> Algorithm:
    """Return the algorithm as it is used when workers start with different values."""
    if not algorithm.reaches_consensus:
        raise ValueError(
            f"{type(algorithm).__name__} cannot average; use choco, powergossip, deepsqueeze or dpsgd"
        )
    return replace(algorithm, **algorithm.different_starts)  # type: ignore[type-var]  # a dataclass


def _node(rank: int, t: Tensor, algorithm: Algorithm, topology: Topology | Schedule, seed: int) -> Node:
    buckets = make_buckets({"tensor": Parameter(t.detach().clone(), requires_grad=False)})
    return Node(rank, buckets, _stay, algorithm, topology, common_start=False, seed=seed)


@torch.no_grad()
def _gossip(
    nodes: list[Node], together: Together, tolerance: float, max_rounds: int, seed: int
) -> list[Averaged]:
    """Run rounds until the workers agree; `nodes` are those in this process, one or all."""
    first = left = _disagreement(nodes, together, seed)
    while left > tolerance * first and nodes[0].rounds < max_rounds:
        for _ in range(min(CHECK_EVERY, max_rounds - nodes[0].rounds)):
            together.ask([node.round() for node in nodes], "averaging")
        left = _disagreement(nodes, together, seed)
    fraction = left / first if first else 0.0
    return [
        Averaged(
            value=next(iter(node.buckets[0].parameters.values())).detach(),
            rounds=node.rounds,
            bytes_sent=asked.total(),
            disagreement=fraction,
            converged=fraction <= tolerance,
            algorithm=node.algorithm,
        )
        for node, asked in zip(nodes, together.asked, strict=True)
    ]


def _disagreement(nodes: list[Node], together: Together, seed: int) -> float:
    """Return the workers' root mean square distance to their average, from a sketch of each."""
    sketches = [sketch([node.buckets[0].x], seed) for node in nodes]
    averages = together.average(sketches)
    return together.distance([[s] for s in sketches], [[mean] for mean in averages])


def _stay() -> None:
    """Take no optimizer step."""
