"""DCD-PSGD: neighbours keep replicas, and every move is the compressed one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gossamer.algorithms.base import Algorithm, require_common_start, take_compressor
from gossamer.algorithms.replicas import Memory, Replicas, Sum, require_memory, start
from gossamer.compress import Compressor
from gossamer.rounds.phase import StepsAndPhases
from gossamer.rounds.view import View
from gossamer.rounds.worker import Worker


@dataclass(frozen=True)
class DCD(Algorithm):
    """DCD-PSGD, difference compression. Tang et al. 2018, arXiv:1803.06443, Algorithm 1.

    x^_j = x_j holds bit for bit, because x_j itself moves by C(z_j). No step size to tune, but
    only moderate compression converges; a biased compressor often works though no theorem says so.
    """

    compressor: Compressor
    memory: Memory = "auto"  # of the neighbours' x_hat; "replicas" for edges that come and go
    examples: ClassVar[dict[str, str]] = {"dcd": "neighbours keep replicas; every move is the compressed one"}
    costs: ClassVar[dict[str, str]] = {"memory": "2 d"}
    varying_graphs: ClassVar[bool] = False
    reaches_consensus: ClassVar[bool] = False  # workers must start with the same values

    def __post_init__(self) -> None:
        require_memory(self.memory)
        take_compressor(self, self.compressor, "unbiased")

    def start(self, worker: Worker) -> Sum | Replicas:
        """All replicas are the common x_0, and rows of W sum to 1."""
        require_common_start(worker, self)
        return start(worker, self.memory, worker.zeros().copy_(worker.x))

    def rewire(self, worker: Worker, state: Sum | Replicas, before: View) -> StepsAndPhases:
        """Learn the x_hat of new neighbours."""
        return state.rewire(worker, before)

    def round(self, worker: Worker, state: Sum | Replicas) -> StepsAndPhases:
        """Compress the whole move, then make it."""
        C, x = self.compressor, worker.x
        yield worker.step()
        u = x - state.x_hat  #                                      u     = all steps since the last round
        own = worker.encode(C, state.disagreement(worker) + u)  #   z     = sum_j w_ij x^_j + u - x_i
        inbox = yield worker.exchange(own)
        state.absorb(worker, C, own, inbox)  #                      x^_j += C(z_j), own included
        x.copy_(state.x_hat)  #                                     x_i   = x^_i
