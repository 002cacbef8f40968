"""The members of a run as one of them meets them: whom it greets and admits, and what they tell each other.

What follows for edges is the subclass's matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Literal

from gossamer._mesh import greetings
from gossamer._mesh.contacts import Close, Contacts, News, Timing
from gossamer._mesh.frames import Kind, Refused, decode
from gossamer._mesh.greetings import Beat, Hello
from gossamer._mesh.link import Link
from gossamer._mesh.members import UNSEEN, Fact, Member, Members, Status

TIMING = Timing()


class Company(Contacts):
    """One member's links, and what it knows of others."""

    def __init__(
        self,
        me: Member,
        known: Iterable[Member],
        run: bytes,
        nonce: Callable[[], int],
        now: float,
        timing: Timing = TIMING,
    ) -> None:
        super().__init__(run, nonce, now, timing)
        self.id = me.id
        self.members = Members(me, known, timing.suspicion)
        self.settings: dict[str, str] = {}  # what all must have in common; empty before it is known
        self.meeting = False  # whether this member looks for the others, and does not train yet
        self.round = 0
        self.admits: Callable[[str], bool] = lambda key: True  # whoever the network lets in
        self.refusals: dict[int, dict[str, str]] = {}  # the settings of members that have refused this one
        self._seeks: int | None = None
        self._sought_waiting: frozenset[int] = frozenset()  # who had not begun when it was sought
        self._random, self._sought = Random(nonce()), now  # noqa: S311 - whom to seek first is no secret

    @property
    def begun(self) -> bool:
        """Whether this member trains, or has trained."""
        return self.members.by_id[self.id].status > Status.WAITING

    def way_to_begin(self, founders: frozenset[int]) -> Literal["found", "join"] | None:
        """Return how this member can begin now.

        With all founders, if they are there and none trains yet; or, as soon as one is known that trains, by
        taking its model. That one trains is told together with the fact that it is there.
        """
        if self.members.training():
            return "join"
        return "found" if self.id in founders and self.members.waiting() >= founders else None

    def agree_on(self, settings: Mapping[str, str]) -> None:
        """Be linked from now on only to members that train with the same settings."""
        self.settings = dict(settings)
        for link in self.links.values():
            self._greet(link)  # again, with them

    def leave(self, reason: str) -> None:
        """Say goodbye to all, and which messages they will still get."""
        own = self.members.leave()
        super().leave(reason)
        for link in self.links.values():
            if not link.up:  # perhaps the peer has answered the greeting already
                self._send(link.peer, Kind.MEMBERS, greetings.write({"facts": [own.fact()]}))

    def heard(self, key: str, data: bytes | memoryview, now: float) -> None:
        """Take a frame from the owner of a key, which the network has authenticated."""
        self._advance(now)
        peer = self.members.id_of(key)
        try:
            frame = decode(self.run, data)
            if peer == self.id:
                raise Refused("own key")
            if not self.admits(key):
                self._expel(peer)
                raise Refused("not admitted")
            if frame.kind == Kind.HELLO:
                self._on_hello(key, greetings.read_hello(frame.payload))
            elif peer is None:
                raise Refused("unknown")
            elif frame.kind == Kind.MEMBERS:  # from any member, whether it is a neighbour or not
                self._on_members(peer, greetings.read(frame.payload))
            elif frame.kind == Kind.REFUSAL:
                self._on_refusal(peer, greetings.read_settings(frame.payload))
            elif peer not in self.links:
                raise Refused("unknown")
            elif frame.kind == Kind.ASK:
                self.links[peer].confirm(frame)
                self._on_question(peer, greetings.read_question(frame.payload))
            else:
                self._on_frame(self.links[peer], frame)
        except Refused as refusal:
            name = "stranger" if peer is None else self.members.by_id[peer].name
            self.refused[name, str(refusal)] += 1

    def expect(self, member: Member) -> None:
        """Know of a member that may come; it has not been seen yet."""
        self.members.expect(member)

    def _expel(self, peer: int | None) -> None:
        """End the link to a member that is admitted no longer."""
        if peer is not None and peer in self.links and self.links[peer].up:
            self._lost(self.links[peer], "revoked")

    def _advance(self, now: float) -> None:
        """Let time pass. How long this process, or its machine, has slept says nothing about others."""
        gap = now - self.now - 3 * self.timing.beat
        super()._advance(now)
        if gap > 0:
            self.members.woke_up(gap)
            for link in self.links.values():
                link.heard += gap

    def _seek(self) -> None:
        """Try to meet one of those that are gone: a partition may have healed.

        Or one that has come and not begun, with whom nobody may be in touch who would notice its end.
        """
        if self._seeks is not None and self._seeks not in self.links:
            self.out.append(Close(self._seeks))  # it has not answered
            if self._seeks in self._sought_waiting & self.members.waiting():
                self._spread(self.members.suspect(self._seeks, self.now), None)
        self._sought_waiting = self.members.waiting() if self.begun else frozenset()
        gone = sorted(
            {*self.members.apart_from_alive(), *self._sought_waiting} - self.links.keys() - {self.id}
        )
        self._seeks = self._random.choice(gone) if gone else None
        if self._seeks is not None:
            self._greet(Link(self._seeks, self._nonce, self.now))

    def _greet(self, link: Link) -> None:
        link.greeted = self.now
        own = self.members.by_id[self.id].fact()
        digest = self._digest()
        hello = Hello(own, link.mine, link.theirs, link.edge, digest)
        self._send(link.peer, Kind.HELLO, greetings.write(hello))

    def _digest(self) -> str:
        return greetings.digest(self.settings) if self.settings else ""

    def _beat(self, link: Link) -> None:
        link.beat = self.now
        beat = Beat(link.claims(), self.members.digest(), link.edge, self.round)
        self._send(link.peer, Kind.BEAT, greetings.write(beat), link.epoch)

    def _greeted_by(self, key: str, hello: Hello) -> int:
        """Return whose greeting it is, or raise Refused."""
        if hello.fact[:1] != [key]:
            raise Refused("identity")
        self._spread(self.members.learn([hello.fact], self.now), None)
        peer = self.members.id_of(key)
        if peer is None:  # there is no room for it
            raise Refused("members")
        if self.begun and hello.settings and hello.settings != self._digest():
            self._send(peer, Kind.REFUSAL, greetings.write({"settings": self.settings}))
            if peer in self.links:
                self._down(self.links[peer], "other settings", tell=True)
            raise Refused("settings")
        if self.leaving and peer not in self.links:
            raise Refused("leaving")
        return peer

    def _on_hello(self, key: str, hello: Hello) -> None:
        peer = self._greeted_by(key, hello)
        if self.members.by_id[peer].status > Status.SUSPECT:  # it does not know yet that it is thought dead
            self._send(peer, Kind.MEMBERS, greetings.write({"facts": [self.members.by_id[peer].fact()]}))
            return
        link = self.links.get(peer) or Link(peer, self._nonce, self.now)
        self.links[peer] = link
        was_up, before = link.up, link.their_edge and link.theirs == hello.mine
        try:
            anew, answer = link.greet(hello.mine, hello.theirs)
        except Refused:
            self._greet(link)  # perhaps it has itself been misled by a greeting that was late
            raise
        link.heard, link.their_edge = self.now, hello.edge or before
        if anew:
            self.breaks[peer] += 1
            self.out.append(Close(peer))
            self.news.append(News("down", peer, "begun anew"))
        if answer:
            self._greet(link)
        if link.up and (anew or not was_up):
            self._up(link)

    def _on_beat(self, link: Link, beat: Beat) -> None:
        super()._on_beat(link, beat)
        if beat.members != self.members.digest():
            self._send(link.peer, Kind.MEMBERS, greetings.write({"facts": self.members.facts()}))

    def _on_members(self, peer: int, told: object) -> None:
        facts = told.get("facts") if isinstance(told, dict) else None
        if not isinstance(facts, list):
            raise Refused("payload")
        self._spread(self.members.learn(facts, self.now), peer)

    def _up(self, link: Link) -> None:
        super()._up(link)
        if not link.up:
            return
        link.patience = 1.0
        self._send(link.peer, Kind.MEMBERS, greetings.write({"facts": self.members.facts()}))

    def _lost(self, link: Link, reason: str) -> None:
        super()._lost(link, reason)
        self._spread(self.members.suspect(link.peer, self.now), None)

    def _unreachable(self, link: Link) -> None:
        super()._unreachable(link)
        self._spread(self.members.suspect(link.peer, self.now), None)

    def _left(self, link: Link) -> None:
        self._spread(self.members.left(link.peer, self.now), None)

    def _spread(self, news: list[Member], source: int | None) -> None:
        """Tell all neighbours what is new, except the one it came from; and follow it."""
        if not news:
            return
        facts: list[Fact] = [m.fact() for m in news]
        for link in self.links.values():
            if link.up and link.peer != source:
                self._send(link.peer, Kind.MEMBERS, greetings.write({"facts": facts}))
        for m in news:
            if m.id != self.id and m.incarnation > UNSEEN:
                self.news.append(News(m.status.name.lower(), m.id))
        self._follow()

    def _on_refusal(self, peer: int, theirs: dict[str, str]) -> None:
        """Learn with which settings a member trains that has refused this one."""
        own = {greetings.plain(name): greetings.plain(value) for name, value in self.settings.items()}
        if not own or own == theirs:  # it was for a process before this one, with the same key and port
            raise Refused("stale")
        self.refusals[peer] = theirs
        self.news.append(News("refused", peer, "other settings"))

    def _on_question(self, peer: int, first: int) -> None:
        """Take a member's question for the model."""
        raise NotImplementedError

    def _follow(self) -> None:
        """Do what follows from news of members."""
        raise NotImplementedError
