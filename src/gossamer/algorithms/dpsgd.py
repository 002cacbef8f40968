"""Decentralized SGD without compression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gossamer.algorithms.base import Algorithm, Order, require_gamma, require_order
from gossamer.compress import Identity
from gossamer.rounds.phase import StepsAndPhases
from gossamer.rounds.worker import Worker

FULL_PRECISION = Identity(raw="never")  # all tensors in one piece


@dataclass(frozen=True)
class DPSGD(Algorithm):
    """D-PSGD. Lian et al. 2017, arXiv:1705.09056, Algorithm 1.

    combine-then-adapt (the paper's): x = sum_j w_ij x_j + u, with u from the gradient at x.
    adapt-then-combine:               x = sum_j w_ij (x_j + u_j).
    """

    order: Order = "combine-then-adapt"
    gamma: float = 1.0  # consensus step size; 1 is the paper's
    examples: ClassVar[dict[str, str]] = {"dpsgd": "decentralized SGD without compression"}
    costs: ClassVar[dict[str, str]] = {"bytes": "degree × 4 d"}

    def __post_init__(self) -> None:
        require_order(self.order)
        require_gamma(self.gamma, most=2.0)

    @property
    def sends_before_gradient(self) -> bool:
        """The paper sends x while the gradient at x is computed."""
        return self.order == "combine-then-adapt"

    def start(self, worker: Worker) -> None:
        """No state."""

    def round(self, worker: Worker, state: None) -> StepsAndPhases:
        """Step before or after the exchange."""
        C = FULL_PRECISION
        if self.order == "adapt-then-combine":
            yield worker.step()  #                             x += u
        own = worker.encode(C, worker.x)
        inbox = yield worker.exchange(own)
        pull = worker.zeros()
        worker.add_disagreement(C, pull, own, inbox)  #  sum_j w_ij x_j - x_i
        if self.order == "combine-then-adapt":
            yield worker.step()  #                             x += u
        worker.x.add_(pull, alpha=self.gamma)  #         x += gamma (sum_j w_ij x_j - x_i)
