"""One end of a link between two members: who is in touch, and which messages have gone each way.

A link has an epoch, made of a random number of each end. When either end begins anew, the epoch changes and
both ends count their messages from 1 again; what belongs to another epoch is refused. So a message is never
taken twice, never out of order, and never after the peer has forgotten what it was about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gossamer._mesh.frames import PIECE, Frame, Kind, Refused

WINDOW = 64 << 20  # bytes sent that the peer has not taken yet: it bounds what a slow reader has to hold
MOST_AHEAD = 4096  # messages that a peer may be ahead
MOST_REFUSED = 16  # epochs whose messages were refused, of one peer
MOST_HELD = 1 << 30  # bytes of messages that have arrived from one peer and were not taken, or 4 models
# The streams: training rounds, what all do together, what a neighbour must know, and the model for newcomers.
ROUNDS, OTHERS, COPIES, MODEL = range(4)


@dataclass(slots=True)
class Message:
    """A message on its way out."""

    payload: memoryview
    phase: int
    round: int = 0
    weight: float = 0.0


@dataclass(slots=True)
class Arriving:
    """A message on its way in, piece by piece."""

    phase: int
    round: int
    weight: float
    count: int  # of pieces
    pieces: dict[int, bytes | memoryview] = field(default_factory=dict)
    nbytes: int = 0

    @property
    def whole(self) -> bool:
        """Whether all pieces are there."""
        return len(self.pieces) == self.count

    def payload(self) -> bytes | memoryview:
        """Return the message, of which all pieces are there."""
        return self.pieces[0] if self.count == 1 else b"".join(self.pieces[i] for i in range(self.count))


@dataclass
class Stream:
    """The messages of one kind, numbered from 1 in each direction."""

    posted: int = 0  # the last number given to a message on its way out
    sent: int = 0  # the last number that was sent
    queue: deque[Message] = field(default_factory=deque)  # posted, not sent
    unclaimed: deque[tuple[int, int]] = field(default_factory=deque)  # sent, not taken: number and bytes
    kept: deque[Message] = field(default_factory=deque)  # the same messages, where they may be sent again
    taken: int = 0  # messages of the peer that were taken, without gaps
    early: set[int] = field(default_factory=set)  # others that were taken
    owed: int = 0  # bytes taken since the peer was last told
    arriving: dict[int, Arriving] = field(default_factory=dict)
    held: int = 0  # bytes in `arriving`

    def complete(self, number: int) -> bool:
        """Return whether this message has arrived whole."""
        found = self.arriving.get(number)
        return found is not None and found.whole

    def has_room(self, windows: int) -> bool:
        """Return whether the next message may be sent: one always may."""
        under_way = sum(n for _, n in self.unclaimed) + len(self.queue[0].payload)
        return not self.unclaimed or (under_way <= windows * WINDOW and len(self.unclaimed) < MOST_AHEAD)


class Link:
    """One end of a link. Times are seconds of whoever calls."""

    def __init__(self, peer: int, nonce: Callable[[], int], now: float) -> None:
        self.peer, self._nonce = peer, nonce
        self.heard = now  # when the peer last gave a sign of life
        self.used = now  # when it was last of use
        self.greeted = -1e9  # when it was last sent a greeting
        self.beat = now  # when it was last sent a sign of life
        self.round = 0  # the peer's own, by what it has sent last
        self.stalled: int | None = None  # the round in which it has kept this worker waiting for too long
        self.patience = 1.0  # how long its silence is borne before the link is up, in units of Timing.silence
        self.wanted = False  # whether this end wants the edge
        self.edge = False  # whether it is ready to exchange rounds along it
        self.their_edge = False  # whether the peer does
        self.parting = False  # whether this end has said goodbye and waits for the answer
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.mine, self.theirs, self.up = self._nonce(), 0, False
        self.last: list[int] | None = None  # the peer's last numbers, if it has said goodbye
        self.digests: dict[int, bytes] = {}  # what this end should believe of the peer, by message number
        self.streams = (Stream(), Stream(), Stream(), Stream())
        self.refused: deque[int] = deque(maxlen=MOST_REFUSED)  # epochs of messages that came too soon

    @property
    def epoch(self) -> int:
        """Return the number that both ends know when they are in touch."""
        return self.mine ^ self.theirs if self.theirs else 0

    def rest(self) -> None:
        """Begin anew after a peer that had nothing to do here: what it has not taken is sent again."""
        s = self.streams[OTHERS]
        self.end()
        for message in (*s.kept, *s.queue):
            self.post(OTHERS, message)

    def end(self) -> None:
        """Forget everything about the peer, so that the next greeting begins a new epoch."""
        self._begin_anew()
        self.their_edge = self.parting = False
        self.greeted = -1e9

    @property
    def lacks_messages(self) -> bool:
        """Whether messages of this epoch came before it was this one, and were refused.

        That happens where a greeting is overtaken, since a peer connects anew while its last words travel.
        """
        return self.epoch in self.refused

    @property
    def over(self) -> bool:
        """Whether the peer has left and all its messages are here."""
        return self.last is not None and all(
            s.complete(number) or number in s.early
            for s, last in zip(self.streams, self.last, strict=True)
            for number in range(s.taken + 1, last + 1)
        )

    def greet(self, mine: int, theirs: int) -> tuple[bool, bool]:
        """Take the peer's two numbers; return whether it has begun anew, and whether it needs an answer."""
        if not mine:
            raise Refused("greeting")
        anew = self.up and mine != self.theirs
        if anew and theirs not in (0, self.mine):
            raise Refused("stale")
        if anew:
            self.end()
        self.theirs = mine
        heard_me, was_up = theirs == self.mine, self.up
        self.up = self.up or heard_me
        return anew, not (heard_me and was_up)

    def confirm(self, frame: Frame) -> None:
        """Refuse a frame of another epoch; the right one shows that the peer has heard the greeting."""
        if not self.epoch or frame.epoch != self.epoch:
            if frame.kind == Kind.DATA:
                self.refused.append(frame.epoch)
            raise Refused("epoch")
        self.up = True

    def post(self, stream: int, message: Message) -> int:
        """Queue a message and return its number."""
        s = self.streams[stream]
        s.posted += 1
        s.queue.append(message)
        return s.posted

    def outgoing(self, windows: int = 1) -> Iterator[Frame]:
        """Return the pieces that may be sent now, as far as the peer has room for them."""
        for number, s in enumerate(self.streams):
            while self.up and s.queue and s.has_room(windows):
                message = s.queue.popleft()
                s.sent += 1
                s.unclaimed.append((s.sent, len(message.payload)))
                if number == OTHERS:
                    s.kept.append(message)
                s.owed = 0
                yield from _pieces(self.epoch, number, s, message)

    @property
    def rests(self) -> bool:
        """Whether the peer lives, but is still in the round in which it was waited for in vain."""
        return self.stalled is not None

    def go_on(self, round: int) -> None:  # noqa: A002
        """Learn in which round the peer is."""
        self.round = round
        if round != self.stalled:
            self.stalled = None

    def arrive(self, frame: Frame, most_held: int = MOST_HELD) -> None:
        """Store a piece of a message."""
        self.confirm(frame)
        if frame.stream >= len(self.streams):
            raise Refused("stream")
        s = self.streams[frame.stream]
        self.claim(frame.stream, frame.taken)
        if frame.number <= s.taken or frame.number in s.early:
            raise Refused("duplicate")
        if frame.number > s.taken + MOST_AHEAD:
            raise Refused("ahead")
        if sum(each.held for each in self.streams) + len(frame.payload) > most_held:
            raise Refused("window")
        found = s.arriving.get(frame.number)
        if found is None:
            found = Arriving(frame.phase, frame.round, frame.weight, frame.pieces)
            s.arriving[frame.number] = found
        if found.count != frame.pieces or found.phase != frame.phase:
            raise Refused("changed")
        if frame.piece in found.pieces:
            raise Refused("duplicate")
        found.pieces[frame.piece] = frame.payload
        found.nbytes += len(frame.payload)
        s.held += len(frame.payload)

    def claim(self, stream: int, taken: int) -> None:
        """Learn how many messages the peer has taken, which makes room for others."""
        s = self.streams[stream]
        if taken > s.sent:
            raise Refused("claim")
        while s.unclaimed and s.unclaimed[0][0] <= taken:
            s.unclaimed.popleft()
            if s.kept:
                s.kept.popleft()

    def take(self, stream: int, number: int) -> Arriving | None:
        """Return and forget a message that has arrived whole. They may be taken in any order."""
        s = self.streams[stream]
        if not s.complete(number):
            return None
        found = s.arriving.pop(number)
        s.held -= found.nbytes
        s.owed += found.nbytes
        s.early.add(number)
        while s.taken + 1 in s.early:
            s.taken += 1
            s.early.remove(s.taken)
        return found

    def forget_rounds(self) -> None:
        """Drop what has arrived for training: nobody will take it. What all do together may still be."""
        for s in (s for number, s in enumerate(self.streams) if number != OTHERS):
            s.taken = max([s.taken, *s.early, *s.arriving])
            s.arriving.clear()
            s.early.clear()
            s.held = 0

    def owes_claim(self) -> bool:
        """Return whether the peer may be waiting for room that it has not heard of."""
        return any(s.owed >= WINDOW // 4 for s in self.streams)

    def claims(self) -> list[int]:
        """Return what was taken of every stream, to be sent to the peer."""
        for s in self.streams:
            s.owed = 0
        return [s.taken for s in self.streams]


def _pieces(epoch: int, stream: int, s: Stream, message: Message) -> Iterator[Frame]:
    payload = message.payload
    count = max(1, -(-len(payload) // PIECE))
    for i in range(count):
        yield Frame(
            Kind.DATA,
            epoch,
            message.phase,
            s.sent,
            s.taken,
            message.round,
            message.weight,
            stream,
            i,
            count,
            payload[i * PIECE : (i + 1) * PIECE],
        )
