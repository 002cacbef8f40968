"""What all workers compute together, for the workers in this process: one of them, or all, simulated.

Averages, distances and error texts have the same bits on all workers, and are the same code for both kinds.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from gossamer.rounds.collectives import (
    all_gather,
    all_mean,
    as_accumulator,
    combine,
    first_error,
    text_as_tensor,
    text_of,
)
from gossamer.rounds.drive import run_together
from gossamer.rounds.phase import Round
from gossamer.transport import Flight, Transport

AVERAGE = "average of all workers"


class Together(ABC):
    """The workers in this process, and how they reach all others."""

    def __init__(self, ids: Sequence[int], members: Sequence[int]) -> None:
        self.ids, self.members = ids, members  # the workers in this process, and all workers
        self.asked: list[Counter[int]] = [Counter() for _ in ids]  # bytes sent beside training, by peer

    @abstractmethod
    def run(self, rounds: Sequence[Round], name: str) -> list[Counter[int]]:
        """Run one round per local worker, with those of all others; return the bytes each sent, by peer."""

    @torch.no_grad()
    def ask(self, rounds: Sequence[Round], name: str) -> None:
        """Run rounds that are not training, and count what they send."""
        for asked, sent in zip(self.asked, self.run(rounds, name), strict=True):
            asked.update(sent)

    def average(self, vectors: Sequence[Tensor]) -> list[Tensor]:
        """Average one vector per worker over all workers; return one copy per local worker.

        It is exact, summed in float32 at least.
        """
        totals = [as_accumulator(v) for v in vectors]
        self.ask([all_mean(i, self.members, v) for i, v in zip(self.ids, totals, strict=True)], AVERAGE)
        return [total.to(v.dtype) for total, v in zip(totals, vectors, strict=True)]

    def mean(self, values: Sequence[float]) -> float:
        """Return the average over all workers of one number per worker."""
        totals = [torch.tensor([float(value)], dtype=torch.float64) for value in values]
        rounds = [combine(i, self.members, v, torch.add) for i, v in zip(self.ids, totals, strict=True)]
        self.ask(rounds, AVERAGE)
        return float(totals[0]) / len(self.members)

    def distance(self, xs: Sequence[Sequence[Tensor]], averages: Sequence[Sequence[Tensor]]) -> float:
        """Return sqrt(1/n sum_i |x_i - average|^2), given the vectors that make up each x and average."""
        return math.sqrt(self.mean([squared_distance(*pair) for pair in zip(xs, averages, strict=True)]))

    def gather(self, rows: Sequence[Sequence[float]]) -> list[list[float]]:
        """Return all workers' rows of numbers, given the rows of the local workers."""
        tables = [torch.zeros(len(self.members), len(row), dtype=torch.float64) for row in rows]
        for i, table, row in zip(self.ids, tables, rows, strict=True):
            table[self.members.index(i)] = torch.tensor(row, dtype=torch.float64)
        rounds = [all_gather(i, self.members, list(t)) for i, t in zip(self.ids, tables, strict=True)]
        self.ask(rounds, "numbers of all workers")
        return tables[0].tolist()

    def first_error(self, complaints: Sequence[str]) -> str:
        """Return one worker's error text, the same on all workers, or "" if none has one."""
        texts = [text_as_tensor(complaint) for complaint in complaints]
        self.ask(
            [first_error(i, self.members, t) for i, t in zip(self.ids, texts, strict=True)], "complaints"
        )
        return text_of(texts[0])


class OverTransport(Together):
    """One worker among others on a network."""

    def __init__(self, transport: Transport) -> None:
        super().__init__([transport.rank], transport.everybody)
        self.transport = transport

    def run(self, rounds: Sequence[Round], name: str) -> list[Counter[int]]:
        """Run this worker's round."""
        return [Flight(r, self.transport, name).finish() for r in rounds]


class InOneProcess(Together):
    """All workers, simulated in this process."""

    def __init__(self, n: int) -> None:
        super().__init__(range(n), range(n))

    def run(self, rounds: Sequence[Round], name: str) -> list[Counter[int]]:
        """Run all workers' rounds in lockstep."""
        return run_together(rounds)


class ByItself(Together):
    """One worker that asks nobody: the others may come and go."""

    def __init__(self, rank: int) -> None:
        super().__init__([rank], [rank])

    def run(self, rounds: Sequence[Round], name: str) -> list[Counter[int]]:
        """Run this worker's round, in which it is alone."""
        return run_together(dict(zip(self.ids, rounds, strict=True)))


def squared_distance(xs: Sequence[Tensor], averages: Sequence[Tensor]) -> float:
    """Return |x - average|^2, given the vectors that make them up."""
    pairs = zip(xs, averages, strict=True)
    return sum(float((x - average).double().square().sum()) for x, average in pairs)
