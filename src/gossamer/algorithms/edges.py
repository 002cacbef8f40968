"""What PowerGossip keeps and sends along one edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gossamer._random import bell_shaped
from gossamer.algorithms.base import NeighbourMemory
from gossamer.algorithms.orthonormal import orthonormal
from gossamer.compress import wire
from gossamer.compress.base import require_finite
from gossamer.compress.layout import Layout
from gossamer.rounds.phase import Phase, blame
from gossamer.rounds.worker import Worker

FACTORS = wire.claim(8, "PowerGossip factors", __name__)


@dataclass
class Edge:
    """P (m x r) and Q (k x r) of every matrix, the same on both ends, and the sub-steps done, c."""

    P: list[Tensor]
    Q: list[Tensor]
    c: int

    def cut(self, layout: Layout, which: Sequence[int]) -> Edge:
        """Return the edge with the factors of some of the layout's tensors only."""
        kept = [at for at, i in enumerate(_matrices(layout)) if i in which]
        return Edge([self.P[at] for at in kept], [self.Q[at] for at in kept], self.c)

    def paste(self, part: Edge, layout: Layout, which: Sequence[int]) -> Edge:
        """Return the edge of all tensors: the part's factors, and the others' as they were left."""
        P, Q, factors = list(self.P), list(self.Q), iter(zip(part.P, part.Q, strict=True))
        for at, i in enumerate(_matrices(layout)):
            if i in which:
                P[at], Q[at] = next(factors)
        return Edge(P, Q, part.c)


@dataclass
class PowerGossipState(NeighbourMemory):
    """One edge per neighbour, drawn at their first exchange."""

    edges: dict[int, Edge] = field(default_factory=dict)

    def known(self, worker: Worker) -> list[int]:
        """Return the other ends of the edges."""
        return list(self.edges)

    def part(self, worker: Worker, j: int) -> None:
        """Forget the edge: both ends draw anew when they meet again."""
        self.edges.pop(j, None)

    def believed(self, worker: Worker, j: int) -> tuple[list[Tensor], list[Tensor]]:
        """Return P and Q, which both ends have."""
        factors = [*self.edges[j].P, *self.edges[j].Q] if j in self.edges else []
        return factors, factors


@dataclass
class Turn:
    """One sub-step on one edge, as one of its ends sees it."""

    peer: int
    sign: float  # -1 on the end with the higher id
    c: int  # sub-steps done before
    factors: list[Tensor]  # what X was multiplied with
    products: list[Tensor]  # X Q or X^T P alternately, and tensors that are sent whole

    def absorb(self, message: Tensor, X: list[Tensor], whole: list[Tensor], weight: float) -> Edge:
        """Move towards the other end, in place, and return the edge with its new factors."""
        theirs = open_products(message, self.products, self.peer)
        hi, lo = (self.products, theirs) if self.sign < 0 else (theirs, self.products)
        out = [b - a for a, b in zip(lo, hi, strict=True)]  # y_hi - y_lo, the same on both ends
        new, differences = out[: len(X)], out[len(X) :]
        P, Q = (self.factors, new) if self.c % 2 else (new, self.factors)
        for M, p, q in zip(X, P, Q, strict=True):
            M.addmm_(p, q.T, alpha=weight * self.sign)  # X_i += gamma w_ij s P Q^T
        for v, difference in zip(whole, differences, strict=True):
            v.add_(difference, alpha=weight * self.sign)  # x_i += gamma w_ij (x_j - x_i)
        return Edge(P, Q, self.c + 1)


def next_turns(
    worker: Worker,
    edges: dict[int, Edge],
    rank: int,
    warm: bool,
    X: list[Tensor],
    whole: list[Tensor],
) -> dict[int, Turn]:
    """Return the next sub-step of every edge, its products computed."""
    turns = {}
    for j, factors in edge_inputs(worker, edges, rank, warm, X).items():
        c = edges[j].c if j in edges else 0
        y = products(X, factors, transposed=c % 2 == 1) + [v.clone() for v in whole]
        turns[j] = Turn(j, -1.0 if worker.id > j else 1.0, c, factors, y)
    return turns


def exchange(turns: dict[int, Turn]) -> Phase:
    """Send every neighbour this end's products, and expect as much in return."""
    messages = {j: wire.Message(FACTORS, turn.products) for j, turn in turns.items()}
    return Phase.of(messages, {j: message.nbytes for j, message in messages.items()})


def matrices_and_vectors(worker: Worker) -> tuple[list[Tensor], list[Tensor]]:
    """Return views of x, which must be finite: tensors of two or more dimensions, and the others."""
    require_finite(worker.x, worker.layout)
    views = worker.layout.views(worker.x).values()
    matrices = [v.view(v.shape[0], v.numel() // max(v.shape[0], 1)) for v in views if v.dim() >= 2]
    return matrices, [v for v in views if v.dim() < 2]


def edge_inputs(
    worker: Worker, left: dict[int, Edge], rank: int, warm: bool, matrices: list[Tensor]
) -> dict[int, list[Tensor]]:
    """Return what the next sub-step multiplies X with on every edge: Q or P alternately, orthonormal.

    They are what the last sub-step left, or drawn afresh. Ends that agree in a matrix leave P = 0 or
    Q = 0, and power iteration never leaves 0 again, so columns of zeros are drawn afresh too. Both
    ends see the same zeros.
    """
    inputs: list[Tensor] = []
    for j in worker.neighbours:
        edge, c = left.get(j), left[j].c if j in left else 0
        known = (edge.P if c % 2 else edge.Q) if edge and warm else None
        if known is None:
            inputs += draw_factors(worker, j, rank, c, matrices)
        elif all(bool(v.any(0).all()) for v in known):
            inputs += known
        else:
            drawn = draw_factors(worker, j, rank, c, matrices)
            inputs += [torch.where(old.any(0), old, new) for old, new in zip(known, drawn, strict=True)]
    ready = iter(orthonormal(inputs))
    return {j: [next(ready) for _ in matrices] for j in worker.neighbours}


def draw_factors(worker: Worker, j: int, rank: int, c: int, matrices: list[Tensor]) -> list[Tensor]:
    """Return random Q of every matrix, or P if c is odd, from a seed that both ends know."""
    low, high = sorted((worker.id, j))
    shapes = [(M.shape[0 if c % 2 else 1], min(rank, *M.shape)) for M in matrices]
    sizes = [rows * columns for rows, columns in shapes]
    more = (worker.bucket,) if worker.bucket else ()  # every bucket draws something else
    drawn = bell_shaped(sum(sizes), worker.seed, "edge", low, high, c, *more).split(sizes)
    return [d.view(s).to(M.device, M.dtype) for d, s, M in zip(drawn, shapes, matrices, strict=True)]


def products(matrices: list[Tensor], factors: list[Tensor], *, transposed: bool) -> list[Tensor]:
    """Return X v for every matrix X, or X^T v, in full precision.

    Ends that nearly agree take a small difference of these, which TF32 or autocast would round away. TF32 is
    used for products of matrices only, so v is taken column by column; on a CPU that is also faster.
    """
    if not matrices:
        return []
    with torch.autocast(matrices[0].device.type, enabled=False):
        return [
            torch.stack([(M.T if transposed else M).mv(column) for column in v.unbind(1)], 1)
            if v.shape[1]
            else v.new_empty(M.shape[1 if transposed else 0], 0)
            for M, v in zip(matrices, factors, strict=True)
        ]


def probe() -> list[Tensor]:
    """Return a draw and what both ends compute from it, to compare them on two machines."""
    drawn = bell_shaped(4000, "probe").view(1000, 4)
    return [drawn, *orthonormal([drawn])]


def open_products(message: Tensor, like: list[Tensor], peer: int) -> list[Tensor]:
    """Return the peer's products: row by row, little-endian, in the parameters' dtype, shaped like ours."""
    nbytes = wire.HEADER.size + sum(t.numel() * t.dtype.itemsize for t in like)
    with blame(peer):
        payload = wire.Reader([wire.unseal(message, FACTORS, nbytes)])
    return [payload.values(t.numel(), t.dtype).view(t.shape).to(t.device) for t in like]


def _matrices(layout: Layout) -> list[int]:
    return [i for i, shape in enumerate(layout.shapes) if len(shape) >= 2]
