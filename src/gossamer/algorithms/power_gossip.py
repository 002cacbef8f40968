"""PowerGossip: every edge follows the largest difference between its two ends by power iteration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from gossamer.algorithms.base import Algorithm, Order, require_gamma, require_order
from gossamer.algorithms.edges import Edge, edge_to, matrices_and_vectors, orthonormal
from gossamer.algorithms.edges import open_products as opened
from gossamer.algorithms.edges import seal_products as sealed
from gossamer.worker import Post, Round, Worker


@dataclass
class PowerGossipState:
    """One edge a neighbour, drawn when first met."""

    edges: dict[int, Edge] = field(default_factory=dict)


@dataclass(frozen=True)
class PowerGossip(Algorithm):
    """PowerGossip. Vogels, Karimireddy, Jaggi 2020, arXiv:2008.01425, Algorithm 2.

    A tensor of two or more dimensions is a matrix X (first dimension x the rest). Sub-steps
    alternate between P = (X_hi - X_lo) Q and Q = (X_hi - X_lo)^T P; each end sends its product.
    Tensors of fewer dimensions are averaged in full with the first sub-step of a round.
    """

    rank: int = 1
    sub_steps: int = 1
    gamma: float = 1.0  # consensus step size; 1 works on every graph
    warm: bool = True  # keep P and Q; False draws afresh every time, as in the theorem
    order: Order = "adapt-then-combine"
    directed_graphs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_order(self.order)
        require_gamma(self.gamma, most=2.0)
        if self.rank < 1 or self.sub_steps < 1:
            raise ValueError(f"rank={self.rank}, sub_steps={self.sub_steps}: both are at least 1")

    @property
    def early(self) -> bool:
        """The first products can leave before the gradient is there."""
        return self.order == "combine-then-adapt"

    def start(self, worker: Worker) -> PowerGossipState:
        """Edges are drawn in the rounds."""
        return PowerGossipState()

    def round(self, worker: Worker, state: PowerGossipState) -> Round:
        """Step, then `sub_steps` exchanges; or the step last."""
        if self.order == "adapt-then-combine":
            worker.step()  #                                               x += u
        X, vectors = matrices_and_vectors(worker)
        w, u = worker.weights, None
        for sub_step in range(self.sub_steps):
            edges = {
                j: edge_to(worker, j, state.edges.get(j), self.rank, self.warm, X) for j in worker.neighbours
            }
            odd = {j: edge.c % 2 == 0 for j, edge in edges.items()}  #     the sub-step to come
            ins = {j: [orthonormal(v) for v in (e.Q if odd[j] else e.P)] for j, e in edges.items()}
            y = {j: [(M if odd[j] else M.T) @ v for M, v in zip(X, ins[j], strict=True)] for j in edges}
            whole = vectors if sub_step == 0 else []
            own = {j: y[j] + [v.clone() for v in whole] for j in edges}
            outbox = {j: sealed(own[j]) for j in edges}
            inbox = yield Post(outbox, {j: m.numel() for j, m in outbox.items()})
            if self.order == "combine-then-adapt" and u is None:
                u = worker.update()  #                                     from the gradient at x
            for j, edge in edges.items():
                s = -1.0 if worker.rank > j else 1.0
                theirs = opened(inbox[j], own[j], j)
                out = [s * (b - a) for a, b in zip(own[j], theirs, strict=True)]  #  y_hi - y_lo
                P, Q = (out[: len(X)], ins[j]) if odd[j] else (ins[j], out[: len(X)])
                for M, p, q in zip(X, P, Q, strict=True):
                    M.add_(p @ q.T, alpha=self.gamma * w[j] * s)  #        X_i += gamma w_ij s P Q^T
                for v, difference in zip(whole, out[len(X) :], strict=True):
                    v.add_(difference, alpha=self.gamma * w[j] * s)  #     x_i += gamma w_ij (x_j - x_i)
                state.edges[j] = Edge(P, Q, edge.c + 1)
        if u is not None:
            worker.x.add_(u)  #                                            x += u
