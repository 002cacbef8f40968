"""CHOCO-SGD: compressed differences to a public copy, and a consensus step of size gamma."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from gossamer.algorithms.base import (
    Algorithm,
    Compress,
    Gamma,
    Order,
    require_choice,
    require_common_start,
    require_gamma,
    require_order,
    resolved,
    take_compressor,
)
from gossamer.algorithms.replicas import Memory, Replicas, Sum, require_memory, start
from gossamer.compress import Compressor
from gossamer.rounds.phase import StepsAndPhases
from gossamer.rounds.view import View
from gossamer.rounds.worker import Worker


@dataclass(frozen=True)
class Choco(Algorithm):
    """CHOCO-SGD. Koloskova, Stich, Jaggi 2019, arXiv:1902.00340, Algorithm 2, and 2020, arXiv:1907.09356.

    adapt-then-combine is the order of the first paper. combine-then-adapt is the second's: the
    message leaves before the gradient at x is computed, so that both take place at once. Keeps
    the average of x for any compressor. Three vectors of memory whatever the degree, or with
    memory="replicas" one more per neighbour.
    """

    compressor: Compressor
    gamma: Gamma = "auto"  # consensus step size
    order: Order = "adapt-then-combine"
    x_hat: Literal["start", "zero"] = "start"  # where x_hat begins: the common x_0, or 0 as published
    memory: Memory = "auto"  # of the neighbours' x_hat
    examples: ClassVar[dict[str, str]] = {"choco": "compressed differences to a public copy"}
    costs: ClassVar[dict[str, str]] = {"memory": "2 d"}
    varying_graphs: ClassVar[bool] = False
    different_starts: ClassVar[dict[str, str]] = {"x_hat": "zero"}

    def __post_init__(self) -> None:
        require_order(self.order)
        require_gamma(self.gamma, auto=True)
        require_memory(self.memory)
        require_choice("x_hat", self.x_hat, "start", "zero")
        take_compressor(self, self.compressor, "delta")

    @property
    def sends_before_gradient(self) -> bool:
        """Only the second paper's order."""
        return self.order == "combine-then-adapt"

    def start(self, worker: Worker) -> Sum | Replicas:
        """Begin where all workers are, or at 0."""
        if self.x_hat == "zero":
            return start(worker, self.memory, worker.zeros())
        require_common_start(worker, self)
        return start(worker, self.memory, worker.zeros().copy_(worker.x))

    def rewire(self, worker: Worker, state: Sum | Replicas, before: View) -> StepsAndPhases:
        """Learn the x_hat of new neighbours."""
        return state.rewire(worker, before)

    def gossip(self, x: Tensor, memory: Tensor, W: Tensor, C: Compress, gamma: float) -> None:
        """Remember x^."""
        memory += C(x - memory)  #             x^ += Q(x - x^)
        x += gamma * (W @ memory - memory)  #  x  += gamma (s - x^)

    def round(self, worker: Worker, state: Sum | Replicas) -> StepsAndPhases:
        """Step, send the difference, and move towards the neighbours."""
        C, x, gamma = self.compressor, worker.x, resolved(self.gamma)
        if self.order == "adapt-then-combine":
            yield worker.step()  #                            x  += u
        q = worker.encode(C, x - state.x_hat)  #              q   = Q(x - x^)
        inbox = yield worker.exchange(q)
        state.absorb(worker, C, q, inbox)  #                  x^ += q, s += sum_j w_ij q_j
        if self.order == "combine-then-adapt":
            yield worker.step()  #                            x  += u
        x.add_(state.disagreement(worker, C), alpha=gamma)  # x  += gamma (s - x^)
