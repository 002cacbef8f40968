"""PowerGossip: every edge follows the largest difference between its two ends by power iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gossamer.algorithms.base import Algorithm, Order, require_gamma, require_order
from gossamer.algorithms.edges import (
    PowerGossipState,
    exchange,
    matrices_and_vectors,
    next_turns,
    probe,
)
from gossamer.rounds.phase import StepsAndPhases
from gossamer.rounds.view import View
from gossamer.rounds.worker import Worker


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
    in_step: ClassVar[bool] = True
    examples: ClassVar[dict[str, str]] = {"powergossip:1": "every edge follows its ends' largest difference"}
    costs: ClassVar[dict[str, str]] = {"phases": "S", "memory": "P, Q per edge", "bytes": "degree × S × B"}
    spec_options: ClassVar[tuple[str, ...]] = ("rank",)

    def __post_init__(self) -> None:
        require_order(self.order)
        require_gamma(self.gamma, most=2.0)
        if self.rank < 1 or self.sub_steps < 1:
            raise ValueError(f"rank={self.rank}, sub_steps={self.sub_steps}: both are at least 1")

    @property
    def sends_before_gradient(self) -> bool:
        """The first products can be sent before the gradient is computed."""
        return self.order == "combine-then-adapt"

    def shared_draws(self) -> list[Tensor]:
        """Return the start of an edge, and what both ends compute from it."""
        return probe()

    def start(self, worker: Worker) -> PowerGossipState:
        """Edges are drawn in the rounds."""
        return PowerGossipState()

    def rewire(self, worker: Worker, state: PowerGossipState, before: View) -> StepsAndPhases:
        """Forget the edges to workers that have left."""
        state.edges = {j: edge for j, edge in state.edges.items() if j in worker.view.members}
        yield from ()

    def round(self, worker: Worker, state: PowerGossipState) -> StepsAndPhases:
        """Step, then `sub_steps` exchanges; or the step last."""
        if self.order == "adapt-then-combine":
            yield worker.step()  #                             x   += u
        X, vectors = matrices_and_vectors(worker)
        u = None
        for sub_step in range(self.sub_steps):
            whole = vectors if sub_step == 0 else []
            turns = next_turns(worker, state.edges, self.rank, self.warm, X, whole)
            inbox = yield exchange(turns)  #                   y_i  = X_i Q or X_i^T P alternately
            if self.order == "combine-then-adapt" and u is None:
                u = yield from worker.update()  #              from the gradient at x
            for j, messages in inbox.items():  #               P, Q = y_hi - y_lo and what it was made with
                weight = self.gamma * worker.weights[j]
                state.edges[j] = turns[j].absorb(messages[""], X, whole, weight)
        if u is not None:
            worker.x.add_(u)  #                                x   += u
