"""DCD-PSGD: neighbours keep replicas, and every move is the compressed one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gossamer.algorithms.base import Algorithm, require_common_start, warn_of_theory
from gossamer.compress import Compressor
from gossamer.worker import Round, Worker


@dataclass
class DCDState:
    """x_hat: this worker's own replica. s = sum_j w_ij x^_j: all that is used of the neighbours'."""

    x_hat: Tensor
    s: Tensor


@dataclass(frozen=True)
class DCD(Algorithm):
    """DCD-PSGD, difference compression. Tang et al. 2018, arXiv:1803.06443, Algorithm 1.

    x^_j = x_j holds bit for bit, because x_j itself moves by C(z_j). No step size to tune, but
    only moderate compression converges; a biased compressor often works though no theorem says so.
    """

    compressor: Compressor
    varying_graphs: ClassVar[bool] = False

    def __post_init__(self) -> None:
        warn_of_theory(self, self.compressor, "unbiased")

    def start(self, worker: Worker) -> DCDState:
        """All replicas are the common x_0, and rows of W sum to 1."""
        require_common_start(worker, self)
        return DCDState(worker.x.clone(), worker.x.clone())

    def round(self, worker: Worker, state: DCDState) -> Round:
        """Compress the whole move, then make it."""
        C, x, x_hat, s = self.compressor, worker.x, state.x_hat, state.s
        worker.step()
        u = x - x_hat  #                                   u    = all steps since the last round
        own = worker.encode(C, s + u - x_hat)  #           z    = sum_j w_ij x^_j + u - x_i
        inbox = yield worker.exchange(own)
        worker.add(C, x_hat, own)
        worker.mix(C, s, own, inbox)  #                    x^_j += C(z_j), summed with w_ij
        x.copy_(x_hat)  #                                  x_i += C(z_i)
