"""Who trains on what: the examples dealt out to workers, and every worker's order of batches.

Everything follows from (seed, epoch, worker): the same on every machine, after every restart.
All workers take the same number of steps per epoch, floor(examples / (workers x batch)): one with fewer
examples repeats some, one with more leaves some for the next epoch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gossamer._random import generator, seed_of
from gossamer._suggest import unknown_name

KINDS = ("iid", "iid-fixed", "dirichlet", "sorted")


@dataclass(frozen=True, eq=False)
class Sampler:
    """Batches of positions for every worker and epoch.

    "iid" deals all examples anew every epoch, "iid-fixed" only once; "dirichlet:0.1" gives every
    class's examples to workers in proportions drawn from Dirichlet(0.1); "sorted" deals them out in
    order of their class.
    """

    kind: str
    examples: int
    workers: int
    batch_size: int
    seed: int = 0
    labels: Tensor | None = None

    def __post_init__(self) -> None:
        name, _, alpha = self.kind.partition(":")
        if name not in KINDS:
            raise unknown_name("partition", name, KINDS)
        if alpha and name != "dirichlet":
            raise ValueError(f"partition '{self.kind}': {name} takes nothing after it")
        if name == "dirichlet" and not _is_positive(alpha):
            raise ValueError(f"partition '{self.kind}': give alpha above 0, as in dirichlet:0.1")
        if name in ("dirichlet", "sorted") and self.labels is None:
            raise ValueError(f"partition '{self.kind}' goes by class, and this task has no classes")
        if self.batch_size < 1:
            raise ValueError(f"batch size {self.batch_size}: at least 1")
        if self.steps < 1:
            raise ValueError(
                f"{self.examples} examples for {self.workers} workers are less than one batch of "
                f"{self.batch_size} each; use fewer workers or smaller batches"
            )

    @property
    def steps(self) -> int:
        """Return the steps of one epoch, the same for all workers."""
        return self.examples // (self.workers * self.batch_size)

    def batches(self, epoch: int, worker: int) -> Tensor:
        """Return the positions of every batch of an epoch, one batch per row.

        A worker beyond the number of workers has come since: it has the share of another, in its own order.
        """
        share = worker % self.workers
        if self.kind == "iid":
            rng = generator(self.seed, "deal", epoch)
            own = torch.randperm(self.examples, generator=rng)[share :: self.workers]
        else:
            own = self.shards[share]
        rng = generator(self.seed, "order", epoch, worker)
        wanted = self.steps * self.batch_size
        rounds = -(-wanted // len(own))
        order = torch.cat([own[torch.randperm(len(own), generator=rng)] for _ in range(rounds)])
        return order[:wanted].view(self.steps, self.batch_size)

    @cached_property
    def shards(self) -> list[Tensor]:
        """Return every worker's examples where they are dealt once; for "iid" those of epoch 0."""
        deals: dict[str, Callable[[], list[Tensor]]] = {
            "iid": lambda: self._dealt("deal", 0),
            "iid-fixed": lambda: self._dealt("deal"),
            "sorted": self._sorted,
            "dirichlet": self._dirichlet,
        }
        return deals[self.kind.partition(":")[0]]()

    def counts(self) -> Tensor | None:
        """Return how many examples of every class (column) each worker (row) has, if there are classes."""
        if self.labels is None:
            return None
        classes = int(self.labels.max()) + 1
        return torch.stack([self.labels[own].bincount(minlength=classes) for own in self.shards])

    def _dealt(self, *key: int | str) -> list[Tensor]:
        order = torch.randperm(self.examples, generator=generator(self.seed, *key))
        return [order[worker :: self.workers] for worker in range(self.workers)]

    def _sorted(self) -> list[Tensor]:
        assert self.labels is not None
        return list(self.labels.argsort(stable=True).tensor_split(self.workers))

    def _dirichlet(self) -> list[Tensor]:
        """Cut every class by Dirichlet proportions; a worker left with nothing gets one example."""
        assert self.labels is not None
        draw = np.random.Generator(np.random.PCG64(seed_of(self.seed, "dirichlet")))
        alpha = float(self.kind.partition(":")[2])
        shards: list[list[Tensor]] = [[] for _ in range(self.workers)]
        for label in range(int(self.labels.max()) + 1):
            own = (self.labels == label).nonzero().view(-1)
            own = own[torch.from_numpy(draw.permutation(len(own)))]
            cuts = np.cumsum(draw.dirichlet([alpha] * self.workers))[:-1] * len(own)
            for shard, part in zip(
                shards, own.tensor_split(torch.from_numpy(cuts.astype(np.int64))), strict=True
            ):
                shard.append(part)
        joined = [torch.cat(shard) for shard in shards]
        spare = torch.from_numpy(draw.permutation(self.examples))
        return [own if len(own) else spare[i : i + 1] for i, own in enumerate(joined)]


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False
