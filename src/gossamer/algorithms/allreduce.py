"""All-reduce SGD, exact or quantized: the baselines that use every worker in every round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from gossamer.algorithms.base import Algorithm, require_common_start, take_compressor
from gossamer.compress import Compressor
from gossamer.compress.base import require_finite
from gossamer.rounds.collectives import all_mean
from gossamer.rounds.phase import Phase, Round, StepsAndPhases
from gossamer.rounds.worker import Worker


@dataclass
class AllReduceState:
    """x_sync: the common parameters after the last round; only kept with local steps."""

    x_sync: Tensor | None


@dataclass(frozen=True)
class AllReduce(Algorithm):
    """Averages over all workers, whatever the graph.

    With a round every step the gradients are averaged, as in data-parallel SGD; with `every=H`
    the displacement since the last round is (local SGD, Stich 2018, arXiv:1805.09767). Exact
    by a ring all-reduce; with a compressor every worker sends C(g) to all others (QSGD,
    Alistarh et al. 2017, arXiv:1610.02132, Algorithm 1).
    """

    compressor: Compressor | None = None
    examples: ClassVar[dict[str, str]] = {"allreduce": "SGD by the average of all workers' gradients"}
    costs: ClassVar[dict[str, str]] = {
        "phases": "2 (n−1); 1 with a compressor",
        "memory": "none; 1 d if `every` > 1",
        "bytes": "8 d (n−1)/n; (n−1) × B with a compressor",
    }
    reaches_consensus: ClassVar[bool] = False  # gradients, not models
    reaches_all: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.compressor is not None:
            take_compressor(self, self.compressor, "unbiased")

    def averages_gradients(self, every: int) -> bool:
        """With local steps, displacements are averaged."""
        return every == 1

    def start(self, worker: Worker) -> AllReduceState:
        """Remember the common start if there are local steps."""
        require_common_start(worker, self)
        return AllReduceState(worker.x.clone() if worker.every > 1 else None)

    def round(self, worker: Worker, state: AllReduceState) -> StepsAndPhases:
        """Average gradients, or displacements."""
        if state.x_sync is None:
            g = worker.gradient()
            yield from self.average(worker, g)  #  g   = 1/n sum_j g_j
            worker.set_gradient(g)
            yield worker.step()  #                       x  += u(g)
            return
        yield worker.step()  #                           x  += u
        d = worker.x - state.x_sync
        yield from self.average(worker, d)
        state.x_sync.add_(d)  #                    x_s += 1/n sum_j (x_j - x_s)
        worker.x.copy_(state.x_sync)

    def average(self, worker: Worker, v: Tensor) -> Round:
        """Replace v by the average of all workers' v, or of their C(v)."""
        if self.compressor is None:
            require_finite(v, worker.layout)
            yield from all_mean(worker.id, worker.view.members, v)
            return
        own = worker.encode(self.compressor, v)
        others = [j for j in worker.view.members if j != worker.id]
        inbox = yield Phase.of(dict.fromkeys(others, own), {j: own.size_from(j) for j in others})
        total = worker.zeros()
        # A fixed order, and weights of 1, which no processor rounds: the same bits everywhere.
        for j in worker.view.members:
            if j == worker.id:
                worker.add(self.compressor, total, own)
            else:
                worker.add_from(self.compressor, total, j, inbox[j][""])
        v.copy_(total.div_(worker.n))
