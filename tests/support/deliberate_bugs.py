"""Deliberate bugs, each a small change of the mesh while it is switched on: can the rehearsal see them?

The mesh itself knows nothing of them. A bug that no schedule finds asks for a stricter rehearsal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from gossamer._mesh import members
from gossamer._mesh.contacts import Contacts, Send
from gossamer._mesh.frames import Kind, Refused
from gossamer._mesh.greetings import Goodbye
from gossamer._mesh.link import Arriving, Link, Stream
from gossamer._mesh.members import Members, Status, id_of_stranger
from gossamer._mesh.protocol import Protocol
from gossamer._mesh.wiring import Wiring

Change = Callable[[Any], Any]  # the function as it is, and as it is with the bug


@dataclass(frozen=True)
class Bug:
    """A change of one function, and the faults that bring it to light, if it takes special ones."""

    where: object
    function: str
    change: Change
    kinds: tuple[str, ...] | None

    @contextmanager
    def switched_on(self) -> Iterator[None]:
        """Have the bug for a while."""
        with patch.object(self.where, self.function, self.change(getattr(self.where, self.function))):
            yield


BUGS: dict[str, Bug] = {}


def bug(where: object, function: str, kinds: tuple[str, ...] | None = None) -> Callable[[Change], Change]:
    """Remember a change of this function by the change's own name."""

    def remember(change: Change) -> Change:
        BUGS[change.__name__.replace("_", " ")] = Bug(where, function, change, kinds)
        return change

    return remember


def nothing(*arguments: Any) -> None:
    """Do what a forgotten line does."""


# Frames, links and streams


@bug(Link, "confirm")
def an_epoch_is_not_compared(right):
    def confirm(link, frame):
        right(link, replace(frame, epoch=link.epoch))

    return confirm


@bug(Link, "end")
def numbers_go_on_in_a_new_epoch(right):
    def end(link):
        before = link.streams
        right(link)
        link.streams = before

    return end


@bug(Link, "arrive")
def a_message_arrives_again(right):
    def arrive(link, frame):
        s = link.streams[frame.stream]
        try:
            right(link, frame)
        except Refused:
            if frame.number <= s.taken or frame.number in s.early:
                again = Arriving(frame.phase, frame.round, frame.weight, frame.pieces)
                s.arriving[frame.number] = again
            raise

    return arrive


@bug(Link, "arrive")
def a_piece_is_counted_twice(right):
    def arrive(link, frame):
        known = link.streams[frame.stream].arriving.get(frame.number)
        try:
            right(link, frame)
        except Refused:
            if known is not None and frame.piece in known.pieces:
                link.streams[frame.stream].held += len(frame.payload)
            raise

    return arrive


@bug(Arriving, "payload")
def pieces_are_joined_as_they_came(right):
    return lambda message: b"".join(message.pieces.values())


@bug(Link, "claim")
def claims_are_ignored(right):
    return nothing


@bug(Stream, "has_room")
def a_full_window_is_ignored(right):
    return lambda stream: True


@bug(Contacts, "_tend")
def silence_is_not_noticed(right):
    def tend(contacts, link):
        if link.up:
            link.heard = contacts.now
        right(contacts, link)

    return tend


@bug(Protocol, "_on_goodbye")
def the_last_messages_are_not_awaited(right):
    return lambda protocol, link, goodbye: right(protocol, link, Goodbye(goodbye.reason, []))


@bug(Protocol, "_on_goodbye")
def idle_links_are_made_again(right):
    return Contacts._on_goodbye


@bug(Protocol, "_is_idle")
def idle_links_are_kept(right):
    return lambda protocol, link: False


@bug(Protocol, "_follow", ("leave", "slow"))
def who_has_left_is_dropped_on_hearsay(right):
    def want(protocol):
        for link in list(protocol.links.values()):
            left = protocol.members.by_id[link.peer].status == Status.LEFT
            if link.up and link.last is None and left:
                protocol._down(link, "hearsay", tell=True)
                del protocol.links[link.peer]
        right(protocol)

    return want


@bug(Link, "forget_rounds", ("leave", "slow copies"))
def messages_of_those_that_left_are_kept(right):
    return nothing


# Members


@bug(Members, "begin", ("kill", "restart"))
def that_one_trains_is_told_to_nobody(right):
    return lambda known: []


@bug(Members, "learn")
def a_suspicion_is_not_refuted(right):
    def learn(known, facts, now):
        own = known.by_id[known.me].key
        return right(known, [fact for fact in facts if fact[:1] != [own]], now)

    return learn


@bug(Members, "_refute")
def a_refutation_is_not_above_the_rumour(right):
    return lambda known, heard: right(known, replace(heard, incarnation=heard.incarnation - 1))


@bug(Members, "leave")
def who_has_left_refutes_it(right):
    return lambda known: known.by_id[known.me]


@bug(Members, "tick")
def suspicion_never_ends(right):
    return lambda known, now: []


@bug(Protocol, "_seek")
def the_dead_are_not_sought(right):
    return nothing


@bug(Protocol, "_advance")
def a_sleeper_blames_the_others(right):
    return Contacts._advance


@bug(Protocol, "_on_beat", ("loss", "stranger"))
def lists_of_members_are_not_compared(right):
    return Contacts._on_beat


@bug(Protocol, "_spread")
def news_are_not_spread(right):
    def spread(protocol, news, source):
        before = list(protocol.out)
        protocol.out.clear()
        right(protocol, news, source)
        rest = [action for action in protocol.out if not _tells_of_members(action)]
        protocol.out.clear()
        protocol.out.extend([*before, *rest])

    return spread


def _tells_of_members(action):
    return isinstance(action, Send) and action.data[3] == Kind.MEMBERS


@bug(members, "read_fact")
def places_are_not_told(right):
    def read_fact(fact):
        found = right(fact)
        return replace(found, id=id_of_stranger(found.key))

    return read_fact


@bug(Wiring, "_repairs")
def nobody_takes_the_place_of_the_gone(right):
    return lambda *arguments: set()
