"""The naive way to compress decentralized SGD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gossamer.algorithms.base import Algorithm, take_compressor
from gossamer.compress import Compressor
from gossamer.rounds.phase import StepsAndPhases
from gossamer.rounds.worker import Worker


@dataclass(frozen=True)
class NaiveQuantized(Algorithm):
    """D-PSGD with compressed models, x = sum_j w_ij C(x_j) + u: kept to show that it stalls.

    The compression error does not shrink with the differences between workers, so it never
    averages out. Tang et al. 2018, arXiv:1803.06443, section 3, give it as a warning.
    """

    compressor: Compressor
    examples: ClassVar[dict[str, str]] = {"naive": "compresses the models themselves, and stalls"}
    reaches_consensus: ClassVar[bool] = False

    def __post_init__(self) -> None:
        take_compressor(self, self.compressor)

    @property
    def sends_before_gradient(self) -> bool:
        """The model is sent while the gradient at it is computed."""
        return True

    def start(self, worker: Worker) -> None:
        """No state."""

    def round(self, worker: Worker, state: None) -> StepsAndPhases:
        """Send the model itself, compressed."""
        own = worker.encode(self.compressor, worker.x)
        inbox = yield worker.exchange(own)
        u = yield from worker.update()
        worker.x.zero_()
        worker.add_weighted(self.compressor, worker.x, own, inbox)  #  x  = sum_j w_ij C(x_j)
        worker.x.add_(u)  #                                            x += u
