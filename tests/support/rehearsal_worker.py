"""One member in a rehearsal: a process with its protocol, and a worker that runs rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gossamer._mesh.contacts import Close
from gossamer._mesh.frames import Kind
from gossamer._mesh.link import Arriving
from gossamer._mesh.members import Member
from gossamer._mesh.neighbourhood import Due, Edge, Neighbourhood
from gossamer._mesh.protocol import Protocol
from tests.support.rehearsal_checks import (
    TICK,
    TIMING,
    check_founding,
    check_judgement,
    check_messages,
    check_patience,
)
from tests.support.rehearsal_model import Model
from tests.support.rehearsal_truth import Broken, check_known, check_link, check_weights, require

if TYPE_CHECKING:
    from tests.support.rehearsal import Stage

RUN = b"rehearse"
DEADLINE = 8.0  # seconds that a worker waits for a neighbour
PATIENCE = 0.3  # seconds that it waits if it may go on without a neighbour
FOUNDING = 15.0  # seconds that it waits for all others at the beginning
GOODBYES = 5.0  # seconds that it waits for answers when it leaves
NAP = 3 * TIMING.beat  # a sleep up to this counts as time awake
SIGNS_OF_LIFE = (Kind.HELLO, Kind.BEAT, Kind.DATA, Kind.DIGEST)
Start = Literal["found", "join"]


@dataclass
class Nap:
    """The sleep of a process that is stopped."""

    since: float
    until: float


class Actor:
    """One process."""

    def __init__(self, stage: Stage, member: Member, known: list[Member], start: list[int]) -> None:
        self.stage, self.id, self.key = stage, member.id, member.key
        self.alive, self.silent, self.leaving = True, False, False
        self._began = stage.now
        self.pace = 1.0  # how slowly it computes
        self.hangs = 0.0  # seconds that its next step takes longer
        self.still_to_do = 0  # rounds
        self.nap: Nap | None = None
        self.woke = 0.0  # when the last nap ended
        self._slept = 0.0  # seconds in naps, beyond what counts as time awake
        self.protocol = Protocol(
            member, known, RUN, lambda: stage.random.getrandbits(62) | 1, stage.now, TIMING
        )
        self.model = Model(stage, self.id, start)
        self.hood = Neighbourhood(self.protocol, self.model, may_lag=stage.plot.lags)
        self.model.edges = self.hood.edges
        self.rounds, self.phase = 0, 0
        self.weights: dict[int, float] = {}
        self._inbox: dict[int, Arriving] = {}
        self._received: Counter[int] = Counter()  # messages of this round
        self._waits_since: float | None = None
        self._founds_until = 0.0
        self._leaves_until, self._heard_leaving = 0.0, False
        self._epochs: dict[int, int] = {}  # of the last edge to each peer
        self.heard: dict[int, float] = {}  # when each member was last heard, in time awake
        self.suspected: dict[int, float] = {}  # since when, in time awake

    @property
    def is_old(self) -> bool:
        """Whether it has been there for long enough to have met the others."""
        return self.stage.now - self._began > 10.0

    @property
    def trains(self) -> bool:
        """Whether it has begun, and has not left."""
        return self.rounds > 0 and not self.leaving

    @property
    def awake(self) -> float:
        """The time as this process could have noticed it."""
        return self.stage.now - self._slept

    def act(self, what: Callable[..., None], *arguments: Any) -> None:
        """Do something, unless this process is gone; later if it sleeps."""
        if not self.alive:
            return
        if self.nap is not None:
            if self.nap.until > self.stage.now:
                self.stage.at(self.nap.until, self.act, what, *arguments)
                return
            self._slept += max(0.0, self.stage.now - self.nap.since - NAP)
            self.woke, self.nap = self.stage.now, None
        what(self, *arguments)
        self._carry()
        check_known(self.id, self.model.replicas, self.hood.edges)

    def sleep(self, until: float) -> None:
        """Stop this process for a while."""
        if self.nap is None:
            self.nap = Nap(self.stage.now, until)

    def enter(self, start: Start) -> None:
        """Begin: wait for all others, or train at once along the edges that come."""
        if start == "found":
            self.protocol.meeting = True
            self._founds_until = self.stage.now + FOUNDING
        else:
            self._train()
        self.stage.later(TICK * self.stage.random.random(), self.act, Actor.tick)
        self._carry()

    def _found(self) -> None:
        """Begin together with all others, with the same model, if no fault comes between."""
        p, late = self.protocol, self.stage.now > self._founds_until
        way = p.way_to_begin(frozenset(range(self.stage.plot.n)))
        if p.meeting and (way == "join" or late):
            self.stage.counts["joined instead of founding"] += 1
            self._founds_until = 0.0
            self._train()
        elif p.meeting and way == "found":
            check_founding(self)
            p.begin(together=True)
            p.rewire(self.stage.wiring())
            p.be_ready()
        elif not p.meeting and (late or p.edges().keys() == p.wanted.keys()):
            self._founds_until = 0.0
            if not late:
                self.stage.counts["founded"] += 1
                self.hood.found()
            p.end_founding()
            self.begin_round()

    def tick(self) -> None:
        """Let the protocol do what is due."""
        self.protocol.tick(self.stage.now)
        for news in self.protocol.news:
            check_judgement(self, news)
        for link in self.protocol.links.values():
            check_link(link)
            check_messages(self, link)
            check_patience(self, link)
        self._read_news()
        self._go_on()
        self.stage.later(TICK, self.act, Actor.tick)

    def hear(self, source: int, key: str, data: bytes) -> None:
        """Take a frame."""
        refused = self.protocol.refused.total()
        self.protocol.heard(key, data, self.stage.now)
        # Whoever is thought to be gone, and greets, is told so first.
        taken = data[3] != Kind.HELLO or source in self.protocol.members.alive()
        if taken and data[3] in SIGNS_OF_LIFE and self.protocol.refused.total() == refused:
            self.heard[source] = self.awake
        if source in self.protocol.links:
            check_link(self.protocol.links[source])
        self._read_news()
        self._go_on()

    def lose(self, peer: int) -> None:
        """Learn that a connection broke."""
        self.protocol.disconnected(peer, self.stage.now)
        self._read_news()
        self._go_on()

    def begin_round(self) -> None:
        """Train a step, and send what follows from it."""
        self.protocol.be_ready()
        self.weights = self.hood.begin()
        check_weights(self.id, self.weights, self.hood.edges)
        for peer in self.weights:
            epoch = self._epochs[peer] = self.hood.edges[peer].epoch
            require(epoch == self.protocol.links[peer].epoch, "an edge outlives the epoch of its link")
        self.model.update()
        self._received.clear()
        self.phase = 0
        self._post()

    def _train(self) -> None:
        self.protocol.begin()
        self.protocol.rewire(self.stage.wiring())
        self.stage.later(self.stage.random.uniform(0.1, 1.0), self.act, Actor.begin_round)

    def _post(self) -> None:
        payload, known = self.model.message(self.phase)
        for peer in self.weights:
            if peer in self.hood.edges:
                self.hood.post(peer, payload, Due(self.phase), self.rounds)
            if peer in self.hood.awaited:
                edge = self.hood.edges[peer]
                self.stage.truth.announce(self.id, edge.epoch, edge.number, known)
        self._inbox, self._waits_since = {}, self.awake
        self._go_on()

    def _go_on(self) -> None:
        """Take what has arrived; go on if that is all, or too late."""
        if self._leaves_until:
            if not self.protocol.parting or self.stage.now > self._leaves_until:
                self.stage.end(self)
                if self._heard_leaving and not self.protocol.parting:
                    self.stage.hear_goodbye(self)
            return
        if self._founds_until:
            self._found()
        if self._waits_since is None:
            return
        self._inbox |= self.hood.collect()
        waited = self.awake - self._waits_since
        if self.hood.awaited and waited >= DEADLINE:
            self.stage.counts["deadline"] += 1
            self.hood.give_up_late(self.hood.awaited)
        if waited > DEADLINE + NAP + 2 * TICK:
            raise Broken(f"worker {self.id} waited {waited} s")
        if self.stage.plot.lags and waited >= PATIENCE:
            self.hood.go_on_without(DEADLINE)
        if not self.hood.awaited:
            self._end_phase()

    def _end_phase(self) -> None:
        self._waits_since = None
        for peer, message in self._inbox.items():
            if peer in self.hood.edges:
                require(message.phase == self.phase, "a message is taken for that of another phase")
                self._received[peer] += 1
                if not self.hood.keep_for_later(peer, message):
                    self.model.catch_up(peer, message)
        self.phase += 1
        if self.phase < self.stage.plot.phases:
            self._post()
        else:
            self._end_round()

    def _end_round(self) -> None:
        self.model.announced = self.model.next
        for peer, edge in self.hood.edges.items():
            if self.stage.plot.lags:
                self._move_alone(peer, edge)
            elif self._received[peer] == self.stage.plot.phases:
                part = self.model.move(peer, self.weights[peer])
                self.stage.truth.exchange(self.id, peer, edge.epoch, edge.number, part)
        self.hood.close_round()
        self.rounds += 1
        self.protocol.round = self.rounds
        self.stage.counts["rounds"] += 1
        if self.leaving:
            self.protocol.leave("finished")
            self._heard_leaving = bool(self.protocol.parting)
            self._leaves_until = self.stage.now + GOODBYES
            self.stage.later(0.0, self.act, Actor._go_on)
        else:
            pause = self.stage.random.uniform(0.05, 0.4) * self.pace + self.hangs
            self.hangs = 0.0
            self.stage.later(pause, self.act, Actor.begin_round)

    def _move_alone(self, peer: int, edge: Edge) -> None:
        """Move towards what is known of a neighbour, which may be late: the other end moves otherwise."""
        if edge.known and edge.taken and peer in self.weights:
            self.stage.truth.add(self.model.move(peer, self.weights[peer]).move)

    def _carry(self) -> None:
        """Do what the protocol has put out."""
        out = self.protocol.out
        while out:
            action = out.popleft()
            if isinstance(action, Close):
                self.stage.hang_up(self.id, action.peer)
            else:
                self.stage.transmit(self.id, action.peer, action.channel, action.data)
        self._read_news()

    def _read_news(self) -> None:
        for news in self.protocol.news:
            self.stage.counts[f"news: {news.what}"] += 1
            if news.what == "down":
                self.stage.counts[f"down: {news.reason}"] += 1
                self.stage.truth.ended[self._epochs.get(news.peer, 0)].add(news.reason)
            elif news.what == "suspect":
                self.suspected.setdefault(news.peer, self.awake)
            elif news.what in ("waiting", "alive", "dead", "left"):
                self.suspected.pop(news.peer, None)
        self.protocol.news.clear()
