"""Graphs that change from round to round."""

from __future__ import annotations

import hashlib
import operator
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial, reduce
from typing import ClassVar, final

import numpy as np

from gossamer.topology.check import is_integer, worker_count
from gossamer.topology.graph import Topology, check_connected, links_of

_COMPARED = 32  # rounds that stand for an endless schedule in its fingerprint


@final
@dataclass(frozen=True, eq=False)
class Schedule:
    """A graph for every round.

    `draw` is a pure function of the round (of round mod period, if there is a period), so that
    all workers see the same graphs without communication. A single round may leave workers without
    neighbours; the union over a period may not.
    """

    name: str
    n: int
    draw: Callable[[int], Topology] = field(repr=False)
    period: int | None = None  # None: the rounds never repeat
    directed: bool = False
    varying: ClassVar[bool] = True

    def __post_init__(self) -> None:
        worker_count(self.n)
        if self.period is not None and not (is_integer(self.period) and self.period >= 1):
            raise ValueError(f"the period must be a whole number of at least 1 or None, not {self.period!r}")
        rounds = [self.at(k) for k in range(self.period or 1)]
        if any(graph.n != self.n or graph.directed > self.directed for graph in rounds):
            raise ValueError(
                f"every round of {self.name} must have {self.n} workers, directed={self.directed}"
            )
        if self.period is not None:
            union = reduce(operator.or_, (links_of(graph.W) for graph in rounds))
            check_connected(union, f"the union of {self.name} over its {self.period} rounds")

    def at(self, round: int) -> Topology:  # noqa: A002
        """Return the graph of a round."""
        if not is_integer(round) or round < 0:
            raise ValueError(f"rounds count from 0, there is no round {round!r}")
        return self.draw(round if self.period is None else round % self.period)

    def weights(self, rank: int, round: int) -> dict[int, float]:  # noqa: A002
        """How `rank` weighs itself and its senders in this round, in rank order."""
        return self.at(round).weights(rank)

    def senders(self, rank: int, round: int) -> tuple[int, ...]:  # noqa: A002
        """Return the workers that `rank` receives from in this round, in rank order, without itself."""
        return self.at(round).senders(rank)

    def receivers(self, rank: int, round: int) -> tuple[int, ...]:  # noqa: A002
        """Return the workers that `rank` sends to in this round, in rank order, without itself."""
        return self.at(round).receivers(rank)

    def fingerprint(self) -> str:
        """Identify the matrices, whatever their name, so that workers can compare theirs.

        The graphs themselves are hashed, not the seed: workers whose libraries draw differently
        from one seed must be detected.
        """
        rounds = [self.at(k).fingerprint() for k in range(self.period or _COMPARED)]
        return hashlib.sha256(f"{self.period} {self.directed} {rounds}".encode()).hexdigest()[:16]


def one_peer_exponential(n: int) -> Schedule:
    """In round k, worker i sends to i + 2^k mod n only, and everyone halves: ½ own, ½ received.

    k runs over 0 to ceil(log2 n) - 1 again and again. One such period averages exactly if and
    only if n is a power of two. Assran et al. 2019, arXiv:1811.10792; Ying et al. 2021,
    arXiv:2110.13363.
    """
    n = worker_count(n)
    period = max(1, (n - 1).bit_length())
    name, one = "one-peer-exponential", np.eye(n)
    rounds = tuple(
        Topology(f"{name} round {k}", (one + np.roll(one, 2**k, axis=0)) / 2, directed=True, partial=True)
        for k in range(period)
    )
    return Schedule(name, n, rounds.__getitem__, period, directed=True)


def random_matching(n: int, seed: int = 0) -> Schedule:
    """Pair the workers at random in each round; pairs average, and with an odd number one has no partner.

    Randomized gossip (Boyd, Ghosh, Prabhakar, Shah 2006) with all pairs at once.
    """
    n = worker_count(n)
    return Schedule("random-matching", n, partial(_matching, n, seed))


def cycle(topologies: Sequence[Topology]) -> Schedule:
    """Take the given graphs in turn."""
    sizes = [topology.n for topology in topologies]
    if len(set(sizes)) != 1:
        raise ValueError(f"a cycle needs at least one graph, and all of one size, not of {sizes} workers")
    return Schedule(
        name=f"cycle({', '.join(topology.name for topology in topologies)})",
        n=sizes[0],
        draw=tuple(topologies).__getitem__,
        period=len(topologies),
        directed=any(topology.directed for topology in topologies),
    )


@lru_cache(maxsize=8)  # every worker of a simulation asks for each round
def _matching(n: int, seed: int, round_: int) -> Topology:
    # random() is the one method whose numbers Python promises never to change: no shuffle here.
    rng = random.Random(f"{seed} {round_}")  # noqa: S311 - repeatable on purpose
    keys = [rng.random() for _ in range(n)]
    order = sorted(range(n), key=keys.__getitem__)
    W = np.eye(n)
    for i, j in zip(order[::2], order[1::2], strict=False):  # the last of an odd number has no partner
        W[[i, i, j, j], [i, j, i, j]] = 0.5
    return Topology(f"random-matching round {round_}", W, partial=True)


def rounds_to_reach_all(topology: Topology | Schedule, rank: int, start: int) -> int:
    """Return how many rounds from `start` on information of one worker needs to all others, one hop each."""
    reached, most = {rank}, 100 * topology.n
    for k in range(most):
        if len(reached) == topology.n:
            return k
        reached |= {j for i in reached for j in topology.receivers(i, start + k)}
    return most  # a schedule that leaves a worker out for so long
