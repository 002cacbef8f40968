"""gamma="auto": the consensus step size, found by gossiping before training."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from gossamer._random import generator
from gossamer.algorithms import Algorithm
from gossamer.compress import Compressor
from gossamer.compress.layout import Layout
from gossamer.rounds.collectives import broadcast
from gossamer.topology import Schedule, Topology
from gossamer.transport import Transport, run

log = logging.getLogger("gossamer")

SHAPE = (40, 50)  # of the random tensors
LARGEST = 100  # rows and columns of the random matrices, where the size matters
CANDIDATES = tuple(float(g) for g in np.logspace(0, -3, 20))
ROUNDS = 300
CHECK_EVERY = 20

A = TypeVar("A", bound=Algorithm)
Shapes = Iterable[Sequence[int]]


def with_gamma(algorithm: A, topology: Topology | Schedule, shapes: Shapes, seed: int) -> A:
    """Return the algorithm with a number in place of gamma="auto"; any other is returned unchanged."""
    if getattr(algorithm, "gamma", None) != "auto":
        return algorithm
    return replace(algorithm, gamma=tune_gamma(algorithm, topology, seed, shapes))  # type: ignore[type-var]


def with_common_gamma(
    algorithm: A, topology: Topology | Schedule, shapes: Shapes, transport: Transport, seed: int
) -> A:
    """Do the same over a network: worker 0 searches for all, since other machines may round differently."""
    if getattr(algorithm, "gamma", None) != "auto":
        return algorithm
    searches = transport.rank == transport.everybody[0]
    found = torch.tensor(
        [tune_gamma(algorithm, topology, seed, shapes) if searches else 0.0], dtype=torch.float64
    )
    run(broadcast(transport.rank, transport.everybody, found), transport, "search for gamma on worker 0")
    log.info("gamma = %.4g found for %s on %s", float(found), algorithm, topology.name)
    return replace(algorithm, gamma=float(found))  # type: ignore[type-var]


def tune_gamma(
    algorithm: Algorithm, topology: Topology | Schedule, seed: int = 0, shapes: Shapes = ()
) -> float:
    """Return the consensus step size that averages random vectors best on this graph.

    As CHOCO-SGD's authors do it: gossip alone, N(0, 1) vectors, the real W and the real
    compressor, a logarithmic grid from 1 down to 0.001. Deterministic in its arguments. A `Split` gets the
    smallest gamma of its compressors.

    Args:
        algorithm: One with a gamma: `Choco` or `DeepSqueeze`.
        topology: The graph on which it will run.
        seed: Seeds the random vectors and the compressor.
        shapes: Those of the model's tensors. They matter to low-rank compressors: how much a low rank keeps
            of a matrix depends on its size, and gamma is proportional to rank / size.

    Returns:
        The consensus step size; 1 for a single worker.

    Raises:
        ValueError: The algorithm has no gamma to find.

    Example:
        >>> import gossamer
        >>> choco = gossamer.algorithms.Choco("sign")
        >>> gamma = gossamer.tune_gamma(choco, gossamer.topology.ring(8))
        >>> 0.001 <= gamma <= 1
        True
    """
    if type(algorithm).gossip is Algorithm.gossip:
        raise ValueError(f"{type(algorithm).__name__} has no gamma to find")
    if topology.n == 1:
        return 1.0
    compressor: Compressor = algorithm.compressor  # type: ignore[attr-defined]  # those with `gossip` have one
    return min(_best(algorithm, own, topology, seed, list(shapes)) for own in compressor.alone())


def _best(
    algorithm: Algorithm, compressor: Compressor, topology: Topology | Schedule, seed: int, shapes: Shapes
) -> float:
    """Return the gamma for one compressor."""
    best, worse = (float("inf"), CANDIDATES[-1]), 0
    shape, factor = _shape(compressor, shapes)
    for gamma in CANDIDATES:
        error = _gossip(algorithm, compressor, gamma, topology, seed, shape)
        worse = worse + 1 if best[0] < min(error, 1.0) else 0
        best = min(best, (error, gamma))
        if worse == 2:  # the error has a single minimum, and we are past it
            break
    return best[1] * factor


def _shape(compressor: Compressor, shapes: Shapes) -> tuple[tuple[int, int], float]:
    """Return the shape of the matrices to try, and the factor for the gamma that is found."""
    matrices = [(shape[0], math.prod(shape[1:])) for shape in shapes if len(shape) > 1]
    if not compressor.size_matters or not matrices:
        return SHAPE, 1.0
    size = min(max(matrices, key=math.prod))
    return (min(size, LARGEST),) * 2, min(1.0, LARGEST / size)


def _gossip(
    algorithm: Algorithm,
    compressor: Compressor,
    gamma: float,
    topology: Topology | Schedule,
    seed: int,
    shape: tuple[int, int],
) -> float:
    """Return what is left of the disagreement after ROUNDS rounds, infinity if it grows."""
    n, compressor = topology.n, replace(compressor, raw="never")  # what is sent raw needs no gamma
    # Compression is per tensor, so a vector with one tensor per worker compresses all workers' at once.
    layout = Layout(tuple(f"worker {i}" for i in range(n)), (shape,) * n)
    x = torch.randn(layout.size, generator=generator(seed, "gamma")).view(n, -1)
    memory = torch.zeros_like(x)
    first, error = _disagreement(x), 1.0
    for t in range(ROUNDS):

        def C(v: Tensor, t: int = t) -> Tensor:
            return compressor.decode(compressor.encode(v, layout, generator(seed, "gamma", t)), layout).view(
                n, -1
            )

        algorithm.gossip(x, memory, torch.from_numpy(topology.at(t).W.copy()).to(x.dtype), C, gamma)
        if (t + 1) % CHECK_EVERY == 0:
            error = _disagreement(x) / first
            if not error < 1.5:
                return float("inf")
    return error


def _disagreement(x: Tensor) -> float:
    return float((x - x.mean(0)).square().sum())
