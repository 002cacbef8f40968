"""Who is there, as one member knows it.

Every member keeps a list of all members and forwards each fact that is new to it. A fact about a member
carries its incarnation, a number that only the member itself raises: when it hears that it is suspected or
dead, it raises the number and says that it is alive, which then counts for more than what was said before
(SWIM: Das, Gupta, Motivala 2002). Who notices a silence is a neighbour on the graph; nobody has to be in
touch with all.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from gossamer._mesh.frames import Refused
from gossamer._mesh.peers import parse_address

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
LONGEST_ADDRESS = 266  # a DNS name, a colon and a port
KEY = re.compile(r"[0-9a-f]{64}")
MOST_MEMBERS = 2048  # all of them fit into one frame
UNSEEN = -1  # the incarnation of a member that nobody has heard of yet
OTHER_IDS = 1 << 32  # ids from here on belong to members that are not in the peers file

Fact = list[Any]  # key, name, address, incarnation, status, id: what one member tells another


class Status(IntEnum):
    """What is believed of a member; of two facts of one incarnation, the higher one counts."""

    WAITING = 0  # there, and does not train yet
    ALIVE = 1  # trains
    SUSPECT = 2
    DEAD = 3
    LEFT = 4


@dataclass(frozen=True)
class Member:
    """A member, and what is believed of it."""

    id: int
    key: str
    name: str
    address: str
    incarnation: int = UNSEEN
    status: Status = Status.DEAD

    @property
    def rank(self) -> tuple[int, int]:
        """Return what decides which of two facts counts."""
        return self.incarnation, self.status

    def fact(self) -> Fact:
        """Return what others are told."""
        return [self.key, self.name, self.address, self.incarnation, int(self.status), self.id]


class Members:
    """The list of members; `me` is always there."""

    def __init__(self, me: Member, others: Iterable[Member], suspicion: float) -> None:
        self.me = me.id
        self.by_id: dict[int, Member] = {m.id: m for m in (me, *others)}
        self._ids = {m.key: m.id for m in self.by_id.values()}
        self._suspicion = suspicion  # seconds from a suspicion to death
        self._since: dict[int, float] = {}  # when a suspicion began
        self._digest: int | None = None  # of the list as it is; None if it has changed

    def expect(self, member: Member) -> None:
        """Know of a member that nobody has seen yet."""
        if member.key not in self._ids and member.id not in self.by_id:
            self._put(member)

    def id_of(self, key: str) -> int | None:
        """Return the id of a key's owner, if it is known."""
        return self._ids.get(key)

    def alive(self) -> frozenset[int]:
        """Return the members that are not known to be gone; a suspect counts as there."""
        return frozenset(i for i, m in self.by_id.items() if m.status <= Status.SUSPECT)

    def waiting(self) -> frozenset[int]:
        """Return the members that are there and do not train yet."""
        return frozenset(i for i, m in self.by_id.items() if m.status == Status.WAITING)

    def training(self) -> frozenset[int]:
        """Return the members that train, and are not suspected to be gone."""
        return frozenset(i for i, m in self.by_id.items() if m.status == Status.ALIVE)

    def apart_from_alive(self) -> list[int]:
        """Return the members that are gone, or were never seen."""
        return [i for i, m in self.by_id.items() if m.status > Status.SUSPECT]

    def digest(self) -> int:
        """Return a number that is the same for members that believe the same."""
        if self._digest is None:
            text = repr(sorted((m.key, m.incarnation, int(m.status)) for m in self.by_id.values()))
            self._digest = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "little")
        return self._digest

    def facts(self) -> list[Fact]:
        """Return everything that is known, for a member that knows less."""
        return [m.fact() for m in self.by_id.values()]

    def learn(self, facts: Sequence[Fact], now: float) -> list[Member]:
        """Take facts from another member; return the members about whom they were news."""
        news = []
        for heard in [read_fact(fact) for fact in facts]:  # all are checked before any is believed
            known = self.by_id.get(self._ids.get(heard.key, heard.id))
            if known is None and len(self.by_id) >= MOST_MEMBERS:
                continue
            if known is not None and known.key != heard.key:  # somebody else has its id
                continue
            if known is None or heard.rank > known.rank:
                m = heard if known is None else replace(heard, id=known.id)
                news.append(self._refute(m) if m.id == self.me else self._believe(m, now))
        return news

    def suspect(self, peer: int, now: float) -> list[Member]:
        """Suspect a member that has fallen silent."""
        m = self.by_id[peer]
        if m.status >= Status.SUSPECT:
            return []
        return [self._believe(replace(m, status=Status.SUSPECT), now)]

    def left(self, peer: int, now: float) -> list[Member]:
        """Believe a member that says goodbye for good."""
        return [self._believe(replace(self.by_id[peer], status=Status.LEFT), now)]

    def begin(self) -> list[Member]:
        """Say that this member trains from now on, if that is news."""
        own = self.by_id[self.me]
        if own.status != Status.WAITING:
            return []
        return [self._put(replace(own, status=Status.ALIVE))]

    def leave(self) -> Member:
        """Leave: what others say of this member is not refuted any more."""
        return self._put(replace(self.by_id[self.me], status=Status.LEFT))

    def tick(self, now: float) -> list[Member]:
        """Declare those dead that were suspected long enough."""
        late = [i for i, since in self._since.items() if now - since >= self._suspicion]
        return [self._believe(replace(self.by_id[i], status=Status.DEAD), now) for i in late]

    def woke_up(self, gap: float) -> None:
        """Forget the time for which this member itself slept: it says nothing about others."""
        self._since = {i: since + gap for i, since in self._since.items()}

    def _believe(self, m: Member, now: float) -> Member:
        self._since.pop(m.id, None)
        if m.status == Status.SUSPECT:
            self._since[m.id] = now
        return self._put(m)

    def _refute(self, heard: Member) -> Member:
        """Answer what others say of this member: it is alive, with a higher incarnation."""
        return self._put(replace(self.by_id[self.me], incarnation=heard.incarnation + 1))

    def _put(self, m: Member) -> Member:
        self.by_id[m.id], self._ids[m.key], self._digest = m, m.id, None
        return m


def id_of_stranger(key: str) -> int:
    """Return the id of a member that is not in the peers file: a number made of its key."""
    return OTHER_IDS + int(hashlib.sha256(key.encode()).hexdigest()[:8], 16)


def read_fact(fact: Any) -> Member:  # noqa: ANN401 - it came from outside
    """Return the member that a fact is about, or raise Refused; nothing of it is believed unchecked."""
    if not isinstance(fact, list) or len(fact) != 6:
        raise Refused("members")
    key, name, address, incarnation, status, number = fact
    texts = ((key, KEY), (name, NAME))
    if not all(isinstance(text, str) and form.fullmatch(text) for text, form in texts):
        raise Refused("members")
    if not isinstance(address, str) or len(address) > LONGEST_ADDRESS:
        raise Refused("members")
    try:
        parse_address(address)
    except ValueError:
        raise Refused("members") from None
    if type(incarnation) is not int or not UNSEEN <= incarnation < 1 << 62:
        raise Refused("members")
    if type(status) is not int or not 0 <= status <= Status.LEFT:
        raise Refused("members")
    if type(number) is not int or not (0 <= number < OTHER_IDS or number == id_of_stranger(key)):
        raise Refused("members")
    return Member(number, key, name, address, incarnation, Status(status))
