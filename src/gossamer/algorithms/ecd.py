"""ECD-PSGD: neighbours extrapolate from compressed points ahead of the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from gossamer.algorithms.base import Algorithm, require_common_start, take_compressor
from gossamer.algorithms.estimates import ECDReplicas, ECDState
from gossamer.algorithms.replicas import Memory, require_memory
from gossamer.compress import Compressor
from gossamer.rounds.phase import StepsAndPhases
from gossamer.rounds.view import View
from gossamer.rounds.worker import Worker


@dataclass(frozen=True)
class ECD(Algorithm):
    """ECD-PSGD, extrapolation compression. Tang et al. 2018, arXiv:1803.06443, Algorithm 2.

    Needs an unbiased compressor whose noise is bounded in absolute terms; a norm-scaled
    quantizer's noise grows with z, and z grows with t.
    """

    compressor: Compressor
    memory: Memory = "auto"  # of the x_tilde; "replicas" for edges that come and go
    examples: ClassVar[dict[str, str]] = {"ecd": "neighbours extrapolate from compressed points"}
    costs: ClassVar[dict[str, str]] = {"memory": "2 d, one in float64"}
    varying_graphs: ClassVar[bool] = False
    reaches_consensus: ClassVar[bool] = False  # workers must start with the same values

    def __post_init__(self) -> None:
        require_memory(self.memory)
        take_compressor(self, self.compressor, "unbiased")

    def start(self, worker: Worker) -> ECDState | ECDReplicas:
        """All estimates are the common x_1."""
        require_common_start(worker, self)
        x_1 = worker.x.to(torch.float64, copy=True)
        if self.memory != "replicas":
            return ECDState(worker.x.clone(), x_1)
        return ECDReplicas(worker.x.clone(), {j: x_1.clone() for j in (*worker.neighbours, worker.id)})

    def rewire(self, worker: Worker, state: ECDState | ECDReplicas, before: View) -> StepsAndPhases:
        """Learn the x_tilde of new neighbours."""
        return state.rewire(worker, before)

    def round(self, worker: Worker, state: ECDState | ECDReplicas) -> StepsAndPhases:
        """Move freely, and send a point extrapolated along the move."""
        C, x, x_t, t = self.compressor, worker.x, state.x_t, worker.t + 1
        yield worker.step()
        u = x - x_t  #                                u   = all steps since the last round
        x_plus = state.total(worker) + u  #           x+  = sum_j w_ij x~_j + u
        z = (1 - t / 2) * x_t + (t / 2) * x_plus  #   z   = (1 - t/2) x + t/2 x+
        x.copy_(x_plus)
        own = worker.encode(C, z.to(x.dtype))
        inbox = yield worker.exchange(own)
        state.absorb(worker, C, own, inbox, t)  #     x~_j = (1 - 2/t) x~_j + 2/t C(z_j)
        x_t.copy_(x)
