"""DeepSqueeze: compressed models with an error memory, no replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gossamer.algorithms.base import (
    Algorithm,
    Compress,
    Gamma,
    require_gamma,
    resolved,
    take_compressor,
)
from gossamer.compress import Compressor
from gossamer.rounds.phase import StepsAndPhases
from gossamer.rounds.worker import Worker


@dataclass
class DeepSqueezeState:
    """What compression has kept back so far."""

    delta: Tensor


@dataclass(frozen=True)
class DeepSqueeze(Algorithm):
    """DeepSqueeze. Tang et al. 2019, arXiv:1907.07346, Algorithm 1.

    `gamma` is the paper's eta. The model itself is compressed, and its norm does not vanish, so
    an error floor stays that grows with gamma. Works on graphs that change.
    """

    compressor: Compressor
    gamma: Gamma = "auto"  # consensus step size
    examples: ClassVar[dict[str, str]] = {"deepsqueeze": "compressed models with an error memory"}
    costs: ClassVar[dict[str, str]] = {"memory": "1 d"}

    def __post_init__(self) -> None:
        require_gamma(self.gamma, auto=True)
        take_compressor(self, self.compressor, "delta")

    def start(self, worker: Worker) -> DeepSqueezeState:
        """Nothing has been kept back."""
        return DeepSqueezeState(worker.zeros())

    def gossip(self, x: Tensor, memory: Tensor, W: Tensor, C: Compress, gamma: float) -> None:
        """Remember delta."""
        v = x + memory
        c = C(v)
        memory.copy_(v - c)  #       delta = v - C(v)
        x += gamma * (W @ c - c)  #  x    += eta (sum_j w_ij C(v_j) - C(v_i))

    def round(self, worker: Worker, state: DeepSqueezeState) -> StepsAndPhases:
        """Step, send model plus memory, move towards what was received."""
        C, x, delta, eta = self.compressor, worker.x, state.delta, resolved(self.gamma)
        yield worker.step()  #                    x    += u
        delta.add_(x)  #                    v     = x + delta
        own = worker.encode(C, delta)
        inbox = yield worker.exchange(own)
        worker.add(C, delta, own, -1.0)  #  delta = v - C(v)
        pull = worker.zeros()  #            summed first, so that x is rounded once
        worker.add_disagreement(C, pull, own, inbox)
        x.add_(pull, alpha=eta)  #          x    += eta (sum_j w_ij C(v_j) - C(v_i))
