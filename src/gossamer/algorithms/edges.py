"""What PowerGossip keeps and says along one edge."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from gossamer import wire
from gossamer.compress.base import require_finite
from gossamer.rng import generator
from gossamer.worker import Worker, blame

FACTORS = 8  # the wire code


@dataclass
class Edge:
    """P (m x r) and Q (k x r) of every matrix, the same on both ends, and the sub-steps done, c."""

    P: list[Tensor]
    Q: list[Tensor]
    c: int


def matrices_and_vectors(worker: Worker) -> tuple[list[Tensor], list[Tensor]]:
    """Return views of x, which must be finite: tensors of two or more dimensions, and the others."""
    require_finite(worker.x, worker.layout)
    views = worker.layout.views(worker.x).values()
    matrices = [v.view(v.shape[0], v.numel() // max(v.shape[0], 1)) for v in views if v.dim() >= 2]
    return matrices, [v for v in views if v.dim() < 2]


def edge_to(worker: Worker, j: int, left: Edge | None, rank: int, warm: bool, matrices: list[Tensor]) -> Edge:
    """Return the edge to worker j before its next sub-step: as it was left, or drawn afresh.

    Ends that agree in a matrix leave P = 0 or Q = 0, and power iteration never leaves 0 again, so
    columns of zeros are drawn afresh too. Both ends see the same zeros.
    """
    c = left.c if left else 0
    if left and warm and all(bool(v.any(0).all()) for v in (left.P if c % 2 else left.Q)):
        return left
    fresh = draw_edge(worker, j, rank, c, matrices)
    if left is None or not warm:
        return fresh
    P = [torch.where(old.any(0), old, new) for old, new in zip(left.P, fresh.P, strict=True)]
    Q = [torch.where(old.any(0), old, new) for old, new in zip(left.Q, fresh.Q, strict=True)]
    return Edge(P, Q, c)


def draw_edge(worker: Worker, j: int, rank: int, c: int, matrices: list[Tensor]) -> Edge:
    """Return random P and Q from a seed that both ends know."""
    low, high = sorted((worker.rank, j))
    rng = generator(worker.seed, "edge", low, high, c)
    P: list[Tensor] = []
    Q: list[Tensor] = []
    for M in matrices:
        r = min(rank, *M.shape)
        for factors, rows in ((P, M.shape[0]), (Q, M.shape[1])):
            drawn = torch.randn(rows, r, generator=rng, dtype=worker.layout.scalar_dtype)
            factors.append(drawn.to(M.device, M.dtype))
    return Edge(P, Q, c)


def orthonormal(v: Tensor) -> Tensor:
    """Return v with orthonormal columns (Gram-Schmidt, in order, eps 1e-8)."""
    dtype = v.dtype
    v = v.to(torch.promote_types(dtype, torch.float32), copy=True)  # eps would vanish in half precision
    for i in range(v.shape[1]):
        column = v[:, i]
        column /= torch.linalg.vector_norm(column) + 1e-8
        if i + 1 < v.shape[1]:
            rest = v[:, i + 1 :]
            rest -= torch.outer(column, column @ rest)
    return v.to(dtype)


def seal_products(products: list[Tensor]) -> Tensor:
    """Return the message: the products row by row, in the parameters' dtype, little-endian."""
    return wire.seal(FACTORS, products)


def open_products(message: Tensor, like: list[Tensor], peer: int) -> list[Tensor]:
    """Return the peer's products, which have the shapes of ours."""
    nbytes = wire.HEADER.size + sum(t.numel() * t.dtype.itemsize for t in like)
    with blame(peer):
        payload = wire.Reader(wire.unseal(message, FACTORS, nbytes))
    return [payload.values(t.numel(), t.dtype).view(t.shape).to(t.device) for t in like]
