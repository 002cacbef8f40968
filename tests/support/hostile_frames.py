"""Hostile frames: real ones, recorded in a rehearsal, are changed and fed to the member they were for.

What a member with an admitted key says in a frame of the right form is believed, as far as it concerns that
member: it may say goodbye, begin anew, tell of members, or send any of the next messages of its streams. The
mathematics then checks the message itself. What must never be:

- an exception;
- a piece of a message that is stored for anybody but the owner of the key, of another epoch, out of range,
  a second time, or from a frame whose header was changed on the way;
- more links than members, more members than allowed, or anything else that grows with the number of frames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from gossamer._mesh.frames import HEADER, PIECE, Frame, Kind, decode, encode
from gossamer._mesh.link import MOST_AHEAD, MOST_HELD
from gossamer._mesh.members import MOST_MEMBERS
from tests.support.hostile_ways import ON_THE_WAY, STRANGER, WAYS, Way, replay
from tests.support.rehearsal import Stage
from tests.support.rehearsal_faults import inject
from tests.support.rehearsal_truth import require
from tests.support.rehearsal_worker import RUN

SECONDS = 12.0  # of the rehearsal that is recorded


@dataclass(frozen=True)
class Recorded:
    """A frame as it came, and whose key it came with."""

    key: str
    data: bytes


class Recording(Stage):
    """A rehearsal that keeps what each member is sent."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, ("leave", "return", "kill", "restart"))
        self.received: dict[int, list[Recorded]] = {}

    def receive(self, source: int, target: int, data: bytes) -> bool:
        """Keep a frame, if there is anybody to hear it, and hand it over."""
        if self.actors[target].alive:
            self.received.setdefault(target, []).append(Recorded(self.actors[source].key, data))
        return super().receive(source, target, data)


class Target:
    """A member in the middle of its work, the frames that it was sent, and what must be true of it."""

    def __init__(self, seed: int) -> None:
        stage = Recording(seed)
        stage.open()
        at = 4.0
        while (at := at + stage.random.expovariate(1 / 3.0)) < SECONDS - 2.0:
            stage.at(at, inject, stage)
        stage.run_until(SECONDS)
        actor = max(stage.there(), key=lambda a: len(a.protocol.links), default=None)
        actor = actor or next(iter(stage.actors.values()))
        self.protocol, self.key, self.now = actor.protocol, actor.key, stage.now
        self.random = Random(seed)
        self.keys = [m.key for m in self.protocol.members.by_id.values()]
        self.frames = [*stage.received.get(actor.id, []), *self._rare_frames()]
        self._headers = {(frame.key, frame.data[: HEADER.size]) for frame in self.frames}
        self._by_kind = [[f for f in self.frames if f.data[3] == kind] or self.frames for kind in Kind]
        self.counts: Counter[str] = Counter()

    def attack(self, frames: int) -> Counter[str]:
        """Take so many hostile frames; return how often each way was tried and each reason was given."""
        for k in range(frames):
            way = self.random.choice(WAYS)
            frame = self.random.choice(self.random.choice(self._by_kind))
            key = frame.key
            if self.random.random() < 0.3:
                key = self.random.choice([*self.keys, STRANGER, self.key])
            self.counts[f"tried: {way.__name__}"] += 1
            self.hear(key, way(self, frame.data), way)
            if k % 40 == 0:
                self._pass_time()
        self._check_bounds()
        for (_, reason), often in self.protocol.refused.items():
            self.counts[f"refused: {reason}"] += often
        return self.counts

    def hear(self, key: str, data: bytes, way: Way) -> None:
        """Take one frame, and check what it has changed."""
        before, sent = self._held(), len(self.protocol.out)
        self.protocol.heard(key, data, self.now)
        after = self._held()
        for place in after:
            if after[place] != before.get(place) and sum(after[place]) > sum(before.get(place, (0, 0))):
                self._check_stored(place, key, data, way)
        answers = len(self.protocol.out) - sent
        require(answers <= 5 * (len(self.protocol.links) + 2), f"one frame was answered by {answers}")

    def _held(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Return how many messages and bytes are stored, by peer and stream, where there are any."""
        streams = ((j, k, s) for j, link in self.protocol.links.items() for k, s in enumerate(link.streams))
        return {(j, k): (len(s.arriving), s.held) for j, k, s in streams if s.arriving}

    def _check_stored(self, place: tuple[int, int], key: str, data: bytes, way: Way) -> None:
        """Check that a piece that was stored is one that its sender may send."""
        require(way is not replay, "a message was stored a second time")
        as_sent = (key, data[: HEADER.size]) in self._headers
        require(as_sent or way not in ON_THE_WAY, "a message was stored whose header was changed on the way")
        peer, stream = place
        link = self.protocol.links[peer]
        frame = decode(RUN, data)
        self.counts["stored"] += 1
        require(self.protocol.members.by_id[peer].key == key, "a message was stored for another member")
        require(frame.kind == Kind.DATA and frame.stream == stream, "something else was stored as a message")
        require(frame.epoch == link.epoch and link.up, "a message of another epoch was stored")
        s = link.streams[stream]
        require(s.taken < frame.number <= s.taken + MOST_AHEAD, "a message far from the next was stored")
        whole = frame.piece == frame.pieces - 1 or len(frame.payload) == PIECE
        require(whole and 0.0 <= frame.weight <= 1.0, "a piece was stored that no member sends")

    def _check_bounds(self) -> None:
        p = self.protocol
        require(len(p.members.by_id) <= MOST_MEMBERS, "there are too many members")
        require(p.links.keys() <= p.members.by_id.keys(), "there are links to nobody")
        for name in ("asked", "refusals"):
            size = len(getattr(p, name))
            require(size <= len(p.members.by_id), f"{name} has {size} entries")
        for link in p.links.values():
            require(sum(s.held for s in link.streams) <= MOST_HELD, "too much is held")
            require(len(link.digests) <= 8, "digests are kept for ever")
            require(
                all(len(s.arriving) + len(s.early) <= MOST_AHEAD for s in link.streams), "too many messages"
            )
        require(len(p.refused) <= 40 * (len(p.members.by_id) + 1), "reasons are kept for every frame")

    def _pass_time(self) -> None:
        """Do what the thread of a real member does: send what is put out, read the news, and tick."""
        self.now += 0.05
        self.protocol.tick(self.now)
        self.protocol.out.clear()
        self.protocol.news.clear()

    def _rare_frames(self) -> Iterator[Recorded]:
        """Return frames of the kinds that members of a rehearsal do not send."""
        for peer, link in self.protocol.links.items():
            key = self.protocol.members.by_id[peer].key
            question = Frame(Kind.ASK, link.epoch, payload=b'{"model":3}')
            refusal = Frame(Kind.REFUSAL, payload=b'{"settings":{"algorithm":"choco"}}')
            yield from (Recorded(key, encode(RUN, frame)) for frame in (question, refusal))
