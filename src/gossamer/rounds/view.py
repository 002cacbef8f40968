"""Who takes part in a round, and along which edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gossamer.topology import Schedule, Topology, ring


@dataclass(frozen=True, eq=False)
class View:
    """The workers of a round by stable ids, and their graph.

    An id belongs to a worker for good: when another one leaves, nobody gets a new number, so that
    randomness, replicas and checkpoints keep their owners. Row i of the graph's W is about `members[i]`.
    A driver may replace the view between two rounds.
    """

    members: tuple[int, ...]  # increasing
    graph: Topology | Schedule

    def __post_init__(self) -> None:
        if len(self.members) != self.graph.n:
            raise ValueError(f"{len(self.members)} members for {self.graph.name} of {self.graph.n} workers")
        if list(self.members) != sorted(set(self.members)):
            raise ValueError(f"members {self.members}: give every id once, in increasing order")

    @classmethod
    def of(cls, graph: Topology | Schedule) -> View:
        """Return the view in which ids are the numbers of the graph's workers."""
        return cls(tuple(range(graph.n)), graph)

    @property
    def n(self) -> int:
        """Return the number of workers."""
        return len(self.members)

    def weights(self, me: int, t: int) -> dict[int, float]:
        """Return a worker's row of W in round t, by id, its own weight included."""
        return {self.members[i]: w for i, w in self.graph.weights(self.place(me), t).items()}

    def senders(self, me: int, t: int) -> tuple[int, ...]:
        """Return the ids of the workers that send to a worker in round t."""
        return tuple(self.members[i] for i in self.graph.senders(self.place(me), t))

    def receivers(self, me: int, t: int) -> tuple[int, ...]:
        """Return the ids of the workers that receive from a worker in round t."""
        return tuple(self.members[i] for i in self.graph.receivers(self.place(me), t))

    def round_of(self, peer: int, t: int) -> int:
        """Return the round of a worker whose neighbour is in round t: the same, where all are in step."""
        return t

    def place(self, me: int) -> int:
        """Return which row of W is about a worker."""
        if me not in self._places:
            raise ValueError(f"worker {me} is not among the members {self.members}")
        return self._places[me]

    @cached_property
    def _places(self) -> dict[int, int]:
        return {member: i for i, member in enumerate(self.members)}


@dataclass(frozen=True, eq=False)
class LocalView(View):
    """What one worker knows where edges come and go: its own row of W, in this round.

    The graph is that of all workers that are known, present or not.
    """

    row: Mapping[int, float] = field(default_factory=dict)  # weights by id, increasing, its own included
    peers: tuple[int, ...] = ()  # whom it exchanges with; one that it does not know yet has no weight
    rounds: Mapping[int, int] = field(default_factory=dict)  # those of its neighbours

    @classmethod
    def alone(cls, me: int) -> LocalView:
        """Return the view of a worker that knows nobody yet."""
        return cls((me,), ring(1), {me: 1.0})

    def weights(self, me: int, t: int) -> dict[int, float]:
        """Return the row."""
        return dict(self.row)

    def senders(self, me: int, t: int) -> tuple[int, ...]:
        """Return the other ends of the edges."""
        return self.peers

    def receivers(self, me: int, t: int) -> tuple[int, ...]:
        """Return the other ends of the edges."""
        return self.peers

    def round_of(self, peer: int, t: int) -> int:
        """Return the round that a neighbour's message belongs to."""
        return self.rounds.get(peer, t)
