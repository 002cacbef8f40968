"""DCD-PSGD: neighbours keep replicas, and every move is the compressed one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gossamer.algorithms.base import Algorithm, require_common_start, take_compressor, warn_of_theory
from gossamer.compress import Compressor
from gossamer.rounds.phase import Round
from gossamer.rounds.worker import Worker


@dataclass
class DCDState:
    """x_hat: this worker's own replica. r = sum_j w_ij x^_j - x_hat: all that is used of the neighbours'."""

    x_hat: Tensor
    r: Tensor


@dataclass(frozen=True)
class DCD(Algorithm):
    """DCD-PSGD, difference compression. Tang et al. 2018, arXiv:1803.06443, Algorithm 1.

    x^_j = x_j holds bit for bit, because x_j itself moves by C(z_j). No step size to tune, but
    only moderate compression converges; a biased compressor often works though no theorem says so.
    """

    compressor: Compressor
    varying_graphs: ClassVar[bool] = False
    reaches_consensus: ClassVar[bool] = False  # workers must start together

    def __post_init__(self) -> None:
        warn_of_theory(self, take_compressor(self, self.compressor), "unbiased")

    def start(self, worker: Worker) -> DCDState:
        """All replicas are the common x_0, and rows of W sum to 1."""
        require_common_start(worker, self)
        return DCDState(x_hat=worker.zeros().copy_(worker.x), r=worker.zeros())

    def round(self, worker: Worker, state: DCDState) -> Round:
        """Compress the whole move, then make it."""
        C, x, x_hat, r = self.compressor, worker.x, state.x_hat, state.r
        worker.step()
        u = x - x_hat  #                              u    = all steps since the last round
        own = worker.encode(C, r + u)  #              z    = sum_j w_ij x^_j + u - x_i
        inbox = yield worker.exchange(own)
        worker.add(C, x_hat, own)  #                  x^_i += C(z_i)
        worker.add_disagreement(C, r, own, inbox)  #  x^_j += C(z_j), summed with w_ij, less x^_i
        x.copy_(x_hat)  #                             x_i  = x^_i
