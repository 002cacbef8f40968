"""ECD-PSGD: neighbours extrapolate from compressed points ahead of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from gossamer.algorithms.base import Algorithm, require_common_start, take_compressor, warn_of_theory
from gossamer.compress import Compressor
from gossamer.rounds.phase import Round
from gossamer.rounds.worker import Worker


@dataclass
class ECDState:
    """x_t: x after the last round. s = sum_j w_ij x~_j, the estimates of the neighbours' models.

    s is in float64: (1 - 2/t) nearly keeps a rounding error for ever, and t of them add up.
    """

    x_t: Tensor
    s: Tensor


@dataclass(frozen=True)
class ECD(Algorithm):
    """ECD-PSGD, extrapolation compression. Tang et al. 2018, arXiv:1803.06443, Algorithm 2.

    Needs an unbiased compressor whose noise is bounded in absolute terms; a norm-scaled
    quantizer's noise grows with z, and z grows with t.
    """

    compressor: Compressor
    varying_graphs: ClassVar[bool] = False
    reaches_consensus: ClassVar[bool] = False  # workers must start together

    def __post_init__(self) -> None:
        warn_of_theory(self, take_compressor(self, self.compressor), "unbiased")

    def start(self, worker: Worker) -> ECDState:
        """All estimates are the common x_1."""
        require_common_start(worker, self)
        return ECDState(worker.x.clone(), worker.x.to(torch.float64, copy=True))

    def round(self, worker: Worker, state: ECDState) -> Round:
        """Move freely, and send a point extrapolated along the move."""
        C, x, x_t, s, t = self.compressor, worker.x, state.x_t, state.s, worker.t + 1
        worker.step()
        u = x - x_t  #                                   u   = all steps since the last round
        x.copy_(s + u)  #                                x+  = sum_j w_ij x~_j + u
        z = (1 - t / 2) * x_t + (t / 2) * (s + u)  #     z   = (1 - t/2) x + t/2 x+
        own = worker.encode(C, z.to(x.dtype))
        inbox = yield worker.exchange(own)
        s.mul_(1 - 2 / t)
        worker.add_weighted(C, s, own, inbox, 2 / t)  #  x~_j = (1 - 2/t) x~_j + 2/t C(z_j)
        x_t.copy_(x)
