"""The links of one member, without sockets, threads or clocks.

What happens goes in; frames to send, connections to close and news for the worker come out.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from gossamer._mesh import greetings
from gossamer._mesh.frames import Frame, Kind, Refused, encode
from gossamer._mesh.greetings import Beat, Goodbye
from gossamer._mesh.link import COPIES, MODEL, MOST_HELD, ROUNDS, Arriving, Link, Message

MOST_PATIENCE = 16.0  # in units of a silence
KEPT = 4  # digests of a peer
HEARD = "heard"  # the answer to a goodbye
IDLE = "idle"  # the reason to end a link along which nothing is under way


class Channel(IntEnum):
    """The connections to a peer: bulk data must not hold up signs of life, nor copies hold up rounds."""

    CONTROL = 0
    DATA = 1
    COPIES = 2


@dataclass(frozen=True, slots=True)
class Send:
    """Send these bytes to a member."""

    peer: int
    channel: Channel
    data: bytes


@dataclass(frozen=True, slots=True)
class Close:
    """Close all connections to a member, and drop what waits in them."""

    peer: int


@dataclass(frozen=True, slots=True)
class News:
    """Something that the worker, or its user, may want to know."""

    what: str  # "up", "down", "refused", or a member's new status in small letters
    peer: int
    reason: str = ""


@dataclass(frozen=True)
class Timing:
    """Seconds."""

    beat: float = 1.0  # between two signs of life
    silence: float = 5.0  # after which a link ends
    hello: float = 0.5  # between two greetings
    suspicion: float = 5.0  # from a suspicion to death
    seek: float = 3.0  # between two attempts to meet a member that is gone


class Contacts:
    """Keeps links: opens them, numbers messages, ends them. What members are is the subclass's matter."""

    def __init__(self, run: bytes, nonce: Callable[[], int], now: float, timing: Timing) -> None:
        self.run, self.timing = run, timing
        self.links: dict[int, Link] = {}
        self.out: deque[Send | Close] = deque()
        self.news: deque[News] = deque()
        self.breaks: Counter[int] = Counter()  # how often a peer, or this end, may have lost a message
        self.in_use: dict[int, int] = {}  # peers of what all do together, and their breaks until then
        self.refused: Counter[tuple[str, str]] = Counter()  # frames by the peer's name and the reason
        self.leaving = False
        self.most_held = MOST_HELD  # bytes from one peer
        self.windows = 1  # as many as may be under way: of several connections, one may be far behind others
        self._nonce, self.now = nonce, now

    def need(self, peer: int) -> Link:
        """Return the link to a member, and greet it if there is none."""
        link = self.links.get(peer)
        if link is None:
            link = self.links[peer] = Link(peer, self._nonce, self.now)
            self._greet(link)
        return link

    def post(self, peer: int, stream: int, message: Message) -> int:
        """Send a message as soon as the link is up and the peer has room; return its number."""
        link = self.need(peer)
        number = link.post(stream, message)
        self._flush(link)
        return number

    def take(self, peer: int, stream: int, number: int) -> Arriving | None:
        """Return a message of a peer if it has arrived whole."""
        link = self.links.get(peer)
        found = link.take(stream, number) if link else None
        if found and link and link.owes_claim():
            self._beat(link)
        return found

    def is_up(self, peer: int, epoch: int) -> bool:
        """Return whether this member is still in touch with a peer as it was in that epoch."""
        link = self.links.get(peer)
        return link is not None and link.up and link.epoch == epoch

    def show(self, peer: int, number: int, digest: bytes) -> None:
        """Tell a peer what it should believe of this member after a message."""
        frame = Frame(Kind.DIGEST, self.links[peer].epoch, number=number, payload=digest)
        self.out.append(Send(peer, Channel.CONTROL, encode(self.run, frame)))

    def end(self, peer: int, reason: str) -> None:
        """End a link, if there is one; both ends begin anew if they still want it."""
        if peer in self.links:
            self._down(self.links[peer], reason, tell=True)

    def leave(self, reason: str) -> None:
        """Say goodbye to all, and which messages they will still get."""
        self.leaving = True
        for link in self.links.values():
            if link.up:
                link.parting = True
                self._say_goodbye(link, f"left: {reason}", [s.posted for s in link.streams])

    @property
    def parting(self) -> list[int]:
        """The members that have not answered a goodbye yet."""
        return [link.peer for link in self.links.values() if link.up and link.parting]

    def disconnected(self, peer: int, now: float) -> None:
        """Learn that a connection to a member broke: what was in it may be lost."""
        self._advance(now)
        link = self.links.get(peer)
        if link is None or not link.up:
            return
        if link.parting:
            link.end()
        elif link.last is None:  # otherwise it has left, and its messages come over its own connections
            self._lost(link, "disconnected")

    def _advance(self, now: float) -> None:
        """Let time pass."""
        self.now = max(self.now, now)

    def _tend(self, link: Link) -> None:
        if link.over:
            return
        if link.up and self.now - link.heard > self.timing.silence:
            self._lost(link, "silence")
        elif link.up and self.now - link.beat >= self.timing.beat:
            self._beat(link)
        elif not link.up and not self.leaving and self.now - link.greeted >= self.timing.hello:
            self._greet(link)
            if self.now - link.heard > link.patience * self.timing.silence:
                self._unreachable(link)

    def _on_frame(self, link: Link, frame: Frame) -> None:
        """Take a frame that belongs to a link."""
        was_up = link.up
        link.confirm(frame)
        if frame.kind == Kind.GOODBYE:
            self._on_goodbye(link, greetings.read_goodbye(frame.payload, len(link.streams)))
            return
        if frame.kind == Kind.DATA:
            link.arrive(frame, self.most_held)
            if frame.stream == ROUNDS:
                link.their_edge = True
                link.go_on(frame.round)
        elif frame.kind == Kind.DIGEST:
            link.digests = dict([*link.digests.items(), (frame.number, bytes(frame.payload[:8]))][-KEPT:])
        elif frame.kind == Kind.BEAT:
            self._on_beat(link, greetings.read_beat(frame.payload, len(link.streams)))
        else:
            raise Refused("kind")
        link.heard = self.now
        if not was_up:
            self._up(link)
        self._flush(link)
        self._conclude(link)

    def _on_beat(self, link: Link, beat: Beat) -> None:
        link.go_on(beat.round)
        for stream, taken in enumerate(beat.taken):
            link.claim(stream, taken)
        link.their_edge = link.their_edge or beat.edge  # an end that wants it no more ends the epoch

    def _on_goodbye(self, link: Link, goodbye: Goodbye) -> None:
        if goodbye.reason == HEARD and link.parting:
            link.end()
        elif goodbye.last:
            link.last = goodbye.last
            self._conclude(link)
        else:
            self._down(link, goodbye.reason, tell=False)

    def _conclude(self, link: Link) -> None:
        """Answer a goodbye once all messages of the peer are here. They can still be taken."""
        if link.over:
            self._say_goodbye(link, HEARD, [])
            self._left(link)

    def _up(self, link: Link) -> None:
        if link.lacks_messages:
            self._down(link, "messages are missing", tell=True)
            return
        self.news.append(News("up", link.peer))
        self._flush(link)

    def _lost(self, link: Link, reason: str) -> None:
        """End a link whose peer may be gone."""
        self._down(link, reason, tell=True)

    def _unreachable(self, link: Link) -> None:
        """Know that a peer does not answer greetings: the longer, the less often this is said."""
        link.heard = self.now
        link.patience = min(2 * link.patience, MOST_PATIENCE)

    def _left(self, link: Link) -> None:
        """Know that a peer has left."""
        self.news.append(News("left", link.peer))

    def _down(self, link: Link, reason: str, *, tell: bool) -> None:
        if tell and link.up:
            self._say_goodbye(link, reason, [])
        if reason == IDLE:
            link.rest()
        else:
            link.end()
            self.breaks[link.peer] += 1
        if not (tell and reason == IDLE):  # then the connections are closed later
            self.out.append(Close(link.peer))
        self.news.append(News("down", link.peer, reason))

    def _flush(self, link: Link) -> None:
        for frame in link.outgoing(self.windows):
            channel = Channel.COPIES if frame.stream in (COPIES, MODEL) else Channel.DATA
            self.out.append(Send(link.peer, channel, encode(self.run, frame)))

    def _say_goodbye(self, link: Link, reason: str, last: list[int]) -> None:
        self._send(link.peer, Kind.GOODBYE, greetings.write(Goodbye(reason, last)), link.epoch)

    def _send(self, peer: int, kind: Kind, payload: bytes, epoch: int = 0) -> None:
        self.out.append(Send(peer, Channel.CONTROL, encode(self.run, Frame(kind, epoch, payload=payload))))

    def _greet(self, link: Link) -> None:
        """Send a greeting."""
        raise NotImplementedError

    def _beat(self, link: Link) -> None:
        """Send a sign of life."""
        raise NotImplementedError
