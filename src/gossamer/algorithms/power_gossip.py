"""PowerGossip: every edge follows the largest difference between its two ends by power iteration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from gossamer.algorithms.base import Algorithm, Order, require_gamma, require_order
from gossamer.algorithms.edges import Edge, edge_inputs, matrices_and_vectors, probe, products
from gossamer.algorithms.edges import open_products as opened
from gossamer.algorithms.edges import seal_products as sealed
from gossamer.rounds.phase import Phase, Round
from gossamer.rounds.worker import Worker


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
    def sends_before_gradient(self) -> bool:
        """The first products can leave before the gradient is there."""
        return self.order == "combine-then-adapt"

    def shared_draws(self) -> list[Tensor]:
        """Return the start of an edge, and what both ends make of it."""
        return probe()

    def start(self, worker: Worker) -> PowerGossipState:
        """Edges are drawn in the rounds."""
        return PowerGossipState()

    def round(self, worker: Worker, state: PowerGossipState) -> Round:
        """Step, then `sub_steps` exchanges; or the step last."""
        if self.order == "adapt-then-combine":
            worker.step()  #                                            x += u
        X, vectors = matrices_and_vectors(worker)
        w, u = worker.weights, None
        for sub_step in range(self.sub_steps):
            ins = edge_inputs(worker, state.edges, self.rank, self.warm, X)
            c = {j: state.edges[j].c if j in state.edges else 0 for j in ins}  #  sub-steps done
            y = {j: products(X, ins[j], transposed=c[j] % 2 == 1) for j in ins}
            whole = vectors if sub_step == 0 else []
            own = {j: y[j] + [v.clone() for v in whole] for j in ins}
            outbox = {j: sealed(own[j]) for j in ins}
            inbox = yield Phase(outbox, {j: m.numel() for j, m in outbox.items()})
            if self.order == "combine-then-adapt" and u is None:
                u = worker.update()  #                                  from the gradient at x
            for j in ins:
                s = -1.0 if worker.rank > j else 1.0
                theirs = opened(inbox[j], own[j], j)
                hi, lo = (own[j], theirs) if worker.rank > j else (theirs, own[j])
                out = [b - a for a, b in zip(lo, hi, strict=True)]  #   y_hi - y_lo, the same on both ends
                P, Q = (ins[j], out[: len(X)]) if c[j] % 2 else (out[: len(X)], ins[j])
                for M, p, q in zip(X, P, Q, strict=True):
                    M.addmm_(p, q.T, alpha=self.gamma * w[j] * s)  #    X_i += gamma w_ij s P Q^T
                for v, difference in zip(whole, out[len(X) :], strict=True):
                    v.add_(difference, alpha=self.gamma * w[j] * s)  #  x_i += gamma w_ij (x_j - x_i)
                state.edges[j] = Edge(P, Q, c[j] + 1)
        if u is not None:
            worker.x.add_(u)  #                                         x += u
