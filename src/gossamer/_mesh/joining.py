"""Learn the peers file from one member that is running, over the connection on which it answers questions.

CURVE needs the member's public key beforehand: otherwise anybody could pose as it. So who joins is given
KEY@HOST:PORT. Nothing that comes back is believed before it is checked as a peers file is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gossamer._mesh import roster
from gossamer._mesh.ask import PATIENCE, Answer, Asker, Contact
from gossamer._mesh.connections import Trouble
from gossamer._mesh.keys import Key, is_public_key
from gossamer._mesh.peers import Peer, Peers, is_loopback, parse_address
from gossamer._mesh.roster import Roster

FORM = "KEY@HOST:PORT, the key as in the peers file: gossamer keys show NAME prints it on that machine"
NO_KEY = "0" * 64  # of a contact, where nothing is encrypted
ADMITTING = 4  # attempts, each half a second or more: a member looks at its peers file once in a second
WHY = {  # what else there is to say
    Trouble.REFUSED: "start with one that is running",
    Trouble.MIXED: "all with --key, or all with --plain",
    Trouble.WRONG_KEY: "take the key that gossamer keys show prints on its machine",
}


@dataclass(frozen=True)
class Door:
    """Whom to ask: where it is, and its public key if one was given."""

    address: str
    key: str = ""

    @property
    def here(self) -> bool:
        """Whether it is on this machine, under a name that no other can use."""
        return is_loopback(parse_address(self.address)[0])


def parse_door(text: str) -> Door:
    """Read KEY@HOST:PORT, or HOST:PORT where nothing is encrypted."""
    key, at, address = text.rpartition("@")
    if at and not is_public_key(key):
        raise ValueError(f"--join {text!r}: before the @ must be 64 digits of 0-9 and a-f; write {FORM}")
    try:
        parse_address(address)
    except ValueError as error:
        raise ValueError(f"--join: {error}; write {FORM}") from None
    return Door(address, key)


def learn(doors: Sequence[Door], key: Key | None, patience: float = PATIENCE) -> Roster:
    """Ask one after the other; return what the first tells that answers, or say why nobody has."""
    troubles = []
    for door in doors:
        if key is not None and not door.key:
            raise ValueError(f"--join {door.address}: with a key of your own, write {FORM}")
        try:
            return _ask(door, key, patience)
        except ValueError as error:
            troubles.append(f"{door.address}: {error}")
    raise ValueError(f"cannot join by {'; '.join(troubles)}")


class _PeersAsker(Asker):
    """Asks a member for its peers."""

    found: Roster | None = None

    def question(self) -> bytes:
        """Return the frame that asks for the peers."""
        return roster.question(self.number)

    def take(self, contact: Contact, data: bytes, took: float) -> None:
        """Take an answer, if it is one to the last question."""
        number, run, told = roster.read_answer(data)
        if number != self.number or contact.answer is not None:
            return
        try:
            self.found, trouble = roster.read(told, run), ""
        except ValueError as error:
            trouble = str(error)
        contact.answer = Answer(contact.peer, None, trouble, took)


def _ask(door: Door, key: Key | None, patience: float) -> Roster:
    peer = Peer(0, "contact", door.address, door.key or NO_KEY)
    with _PeersAsker([peer], key) as asker:
        for _ in range(ADMITTING):
            (answer,) = asker.ask(patience)
            if answer.trouble != Trouble.NOT_ADMITTED:
                break
    if asker.found is None:
        raise ValueError(_explained(answer.trouble, key))
    _require_both(asker.found.peers, door, key)
    return asker.found


def _explained(trouble: str, key: Key | None) -> str:
    if trouble == Trouble.NOT_ADMITTED and key is not None:
        return (
            f"{trouble}: all members must add an entry with key = {key.public!r} at the end of their peers "
            f"files, as gossamer keys show {key.name} prints it, and not revoke it"
        )
    more = WHY[Trouble(trouble)] if trouble in set(WHY) else ""
    return f"{trouble}; {more}" if more else trouble


def _require_both(peers: Peers, door: Door, key: Key | None) -> None:
    """Refuse a list in which this worker, or the one that has told it, is not."""
    if key is not None and roster.entry_of(peers, key.public) is None:
        raise ValueError(f"the peers that it tells have no entry with the public key of {key.name}")
    if door.key and roster.entry_of(peers, door.key) is None:
        raise ValueError("the peers that it tells have no entry with its own key")
