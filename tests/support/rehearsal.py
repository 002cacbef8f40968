"""A rehearsal: members of a mesh on a simulated network with its own time, and faults from a seed.

Everything follows from the seed, so a schedule that breaks an invariant is found again by its number:

    PYTHONPATH=. python -c "from tests.support.rehearsal import rehearse; print(rehearse(5))"
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from random import Random
from unittest.mock import patch

from gossamer._mesh import frames, link, neighbourhood
from gossamer._mesh.members import Member, Status, id_of_stranger
from gossamer._mesh.wiring import Wiring
from gossamer.topology import Schedule, Topology, make
from tests.support.rehearsal_faults import ALL_KINDS, GENTLE, inject
from tests.support.rehearsal_model import ENTRIES
from tests.support.rehearsal_network import Network
from tests.support.rehearsal_quiet import check_end, settle
from tests.support.rehearsal_truth import Truth, require
from tests.support.rehearsal_worker import Actor, Start

GRAPHS = ("ring", "ring", "complete", "star", "chain", "exponential")
LENGTH = 32.0  # seconds with faults
SPREAD = 1.0  # seconds in which news go round
BETWEEN = 2.5  # seconds from a fault to the next, on average


@dataclass(frozen=True)
class Plot:
    """What a schedule is about."""

    n: int  # members of the peers file
    graph: str
    kinds: tuple[str, ...]  # of faults
    lossy: bool  # whether frames are lost, doubled and reordered one by one
    copies: bool  # whether a new neighbour needs a copy
    phases: int  # messages to each neighbour in a round
    lags: bool  # whether a round may end without a message that is late
    founded: bool  # whether all begin together
    small: bool  # whether pieces and windows are so small that messages need several
    start: tuple[int, ...]  # the model of those that begin together
    length: float = LENGTH

    @classmethod
    def draw(cls, random: Random, kinds: tuple[str, ...] | None) -> Plot:
        """Return a plot: many kinds of faults, a few, or gentle ones only."""
        drawn, phases = random.random(), random.choice((1, 1, 2))
        some = random.sample(ALL_KINDS, random.randint(1, 5))
        if kinds is None:
            kinds = ALL_KINDS if drawn < 0.4 else GENTLE if drawn < 0.55 else tuple(some)
        return cls(
            n=random.randint(2, 6),
            graph=random.choice(GRAPHS),
            kinds=kinds,
            lossy=random.random() < 0.5,
            copies=random.random() < 0.7,
            phases=phases,
            lags=phases == 1 and random.random() < 0.25,
            founded=random.random() < 0.4,
            small=random.random() < 0.5,
            start=tuple(random.randrange(-1000, 1000) for _ in range(ENTRIES)),
        )


class Stage(Network):
    """The network, the members on it, and what has happened so far."""

    def __init__(self, seed: int, kinds: tuple[str, ...] | None) -> None:
        super().__init__(seed)
        self.plot = Plot.draw(self.random, kinds)
        self.truth = Truth(ENTRIES, self.plot.phases)
        self.actors: dict[int, Actor] = {}  # the last process of each member
        self.processes: list[Actor] = []  # all that ever were
        self.wall = 1_000_000.0  # what the clocks on the walls show, minus self.now
        self.lossy, self.faults = self.plot.lossy, frozenset(self.plot.kinds)
        self.said_goodbye: set[int] = set()  # those that have left, and were heard
        self._identities = {i: _member(i, i) for i in range(self.plot.n)}
        self._contacts: dict[int, int] = {}  # the only member that a stranger knows

    def there(self) -> list[Actor]:
        """Return the members that are running."""
        return [actor for actor in self.actors.values() if actor.alive]

    def wiring(self) -> Wiring:
        """Return how edges follow from members, a new one for each member."""
        return Wiring(lambda n: _graph(self.plot.graph, n))

    def open(self) -> None:
        """Let the members of the peers file begin."""
        for i in range(self.plot.n):
            self._enter(i, "found" if self.plot.founded else "join")

    def come_back(self, i: int) -> None:
        """Start a member's process anew, unless that has been done.

        It cannot know whether the others train, or are all new like itself, and begin with it.
        """
        if not self.actors[i].alive:
            self._enter(i, "found" if self.plot.founded and i < self.plot.n else "join")

    def welcome(self, contact: Actor) -> None:
        """Start a member that nobody knows, and that knows this one only."""
        number = 1000 + len(self._identities)
        stranger = _member(number, id_of_stranger(f"{number:064x}"))
        self._identities[stranger.id], self._contacts[stranger.id] = stranger, contact.id
        self._enter(stranger.id, "join")

    def end(self, actor: Actor, *, silent: bool = False) -> None:
        """End a process; unless it is silent, those that are connected to it notice."""
        actor.alive, actor.silent = False, silent
        for other in self.actors:
            self.hang_up(actor.id, other)
            if not silent and self.is_connected(other, actor.id):
                self.later(0.05 * self.random.random(), self.break_line, other, actor.id)

    def hear_goodbye(self, left: Actor) -> None:
        """Know that a member has left and was heard; where nothing is lost, all others know it soon."""
        self.said_goodbye.add(left.id)
        if set(self.plot.kinds) <= set(GENTLE):
            self.later(SPREAD, self._check_news, left, [actor for actor in self.there() if actor.is_old])

    def _check_news(self, left: Actor, others: list[Actor]) -> None:
        for actor in others:
            late = self.actors[left.id] is left and actor.alive and left.id in actor.protocol.members.alive()
            require(not late, f"worker {actor.id} has not heard that worker {left.id} has left")

    def receive(self, source: int, target: int, data: bytes) -> bool:
        """Hand over a frame; the machine of a process that is gone says so, unless it is gone too."""
        actor = self.actors[target]
        if actor.alive:
            actor.act(Actor.hear, source, self._identities[source].key, data)
        return actor.alive or actor.silent

    def notice(self, source: int, target: int) -> None:
        """Tell a member that its connection to another broke."""
        self.actors[source].act(Actor.lose, target)

    def _enter(self, i: int, start: Start) -> None:
        incarnation = max(0, int(self.wall + self.now))
        me = _member(int(self._identities[i].key, 16), i, incarnation)
        known = [self._contacts[i]] if i in self._contacts else [j for j in range(self.plot.n) if j != i]
        values = list(self.plot.start)
        if start == "join":
            values = [self.random.randrange(-1000, 1000) for _ in values]
        self.said_goodbye.discard(i)
        actor = self.actors[i] = Actor(self, me, [self._identities[j] for j in known], values)
        self.processes.append(actor)
        actor.enter(start)


def rehearse(seed: int, kinds: tuple[str, ...] | None = None) -> Counter[str]:
    """Run one schedule; return how often each thing has happened, or raise Broken."""
    stage = Stage(seed, kinds)
    with _sizes(small=stage.plot.small):
        stage.open()
        at = 0.0
        while (at := at + stage.random.expovariate(1 / BETWEEN)) < stage.plot.length:
            stage.at(at, inject, stage)
        stage.run_until(stage.plot.length)
        stage.faults, stage.copies_slow_until = frozenset(), 0.0
        settle(stage)
    check_end(stage)
    stage.counts["schedules"] += 1
    stage.counts["exchanges"] += stage.truth.whole()
    stage.counts["half exchanges"] += len(stage.truth.halves())
    return stage.counts


@cache
def _graph(name: str, n: int) -> Topology | Schedule:
    return make(name, n, 0)


@contextmanager
def _sizes(*, small: bool) -> Iterator[None]:
    """Compare what is believed every few rounds; let messages of few bytes need pieces, and wait for room."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(neighbourhood, "GUARD", 4))
        if small:
            for module, name, value in ((frames, "PIECE", 8), (link, "PIECE", 8), (link, "WINDOW", 40)):
                stack.enter_context(patch.object(module, name, value))
        yield


def _member(number: int, i: int, incarnation: int = -1) -> Member:
    status = Status.WAITING if incarnation >= 0 else Status.DEAD
    return Member(i, f"{number:064x}", f"w{number}", f"h{number}:1", incarnation, status)
