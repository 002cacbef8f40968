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
    require_common_start,
    require_gamma,
    require_order,
    resolved,
    take_compressor,
    warn_of_theory,
)
from gossamer.compress import Compressor
from gossamer.rounds.phase import Round
from gossamer.rounds.worker import Worker


@dataclass
class ChocoState:
    """x_hat: what the neighbours believe of x_i. r = s - x_hat with the paper's s = sum_j w_ij x_hat_j.

    r and not s is kept because it vanishes as workers agree, and its rounding errors with it.
    """

    x_hat: Tensor
    r: Tensor


@dataclass(frozen=True)
class Choco(Algorithm):
    """CHOCO-SGD. Koloskova, Stich, Jaggi 2019, arXiv:1902.00340, Algorithm 2, and 2020, arXiv:1907.09356.

    adapt-then-combine is the order of the first paper. combine-then-adapt is the second's: the
    message leaves before the gradient at x is computed, so that both take place at once. Keeps
    the average of x for any compressor. Three vectors of memory whatever the degree.
    """

    compressor: Compressor
    gamma: Gamma = "auto"  # consensus step size
    order: Order = "adapt-then-combine"
    x_hat: Literal["start", "zero"] = "start"  # where x_hat begins: the common x_0, or 0 as published
    varying_graphs: ClassVar[bool] = False
    different_starts: ClassVar[dict[str, str]] = {"x_hat": "zero"}

    def __post_init__(self) -> None:
        require_order(self.order)
        require_gamma(self.gamma, auto=True)
        if self.x_hat not in ("start", "zero"):
            raise ValueError(f"x_hat={self.x_hat!r}: use 'start' or 'zero'")
        warn_of_theory(self, take_compressor(self, self.compressor), "delta")

    @property
    def sends_before_gradient(self) -> bool:
        """Only the second paper's order."""
        return self.order == "combine-then-adapt"

    def start(self, worker: Worker) -> ChocoState:
        """Begin where all workers are, or at 0."""
        state = ChocoState(x_hat=worker.zeros(), r=worker.zeros())
        if self.x_hat == "start":
            require_common_start(worker, self)
            state.x_hat.copy_(worker.x)
        return state

    def gossip(self, x: Tensor, memory: Tensor, W: Tensor, C: Compress, gamma: float) -> None:
        """Remember x^."""
        memory += C(x - memory)  #             x^ += Q(x - x^)
        x += gamma * (W @ memory - memory)  #  x  += gamma (s - x^)

    def round(self, worker: Worker, state: ChocoState) -> Round:
        """Step, tell the difference, and move towards the neighbours."""
        C, x, x_hat, r = self.compressor, worker.x, state.x_hat, state.r
        if self.order == "adapt-then-combine":
            worker.step()  #                        x  += u
        q = worker.encode(C, x - x_hat)  #          q   = Q(x - x^)
        inbox = yield worker.exchange(q)
        worker.add(C, x_hat, q)  #                  x^ += q
        worker.add_disagreement(C, r, q, inbox)  #  s  += sum_j w_ij q_j, with r = s - x^
        if self.order == "combine-then-adapt":
            worker.step()  #                        x  += u
        x.add_(r, alpha=resolved(self.gamma))  #    x  += gamma (s - x^)
