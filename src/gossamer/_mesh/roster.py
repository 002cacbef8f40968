"""What a member tells somebody who has no peers file: the entries of its own, and how its run began.

Entries may have been added since then. The run is still known by those that were there at its beginning, so
a newcomer needs their number as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gossamer._mesh import greetings
from gossamer._mesh.frames import MOST_CONTROL, Frame, Kind, decode, encode
from gossamer._mesh.members import MOST_MEMBERS
from gossamer._mesh.peers import Peer, Peers, peers_of

QUESTION = {"peers": 1}
FIELDS = ("name", "address", "key", "revoked")
RUN = slice(4, 12)  # where a frame has its run


@dataclass(frozen=True)
class Roster:
    """The entries of a member's peers file, and how its run began."""

    peers: Peers
    founded: int  # so many entries were there when the run began
    workers: int  # so many of them were not revoked
    run: bytes = b""  # which run it is

    @property
    def founders(self) -> Peers:
        """The entries that were there when the run began."""
        return Peers(self.peers.all[: self.founded])


def founded_now(peers: Peers) -> Roster:
    """Return the roster of a run that begins with all of these."""
    return Roster(peers, len(peers.all), len(peers.admitted()))


def question(number: int) -> bytes:
    """Return the frame that asks for the peers; the answer has the same number."""
    return encode(bytes(8), Frame(Kind.ASK, number=number, payload=greetings.write(QUESTION)))


def write(roster: Roster | None) -> bytes:
    """Return the bytes of an answer; {} where there is no run, or a list that is too long for one frame."""
    if roster is None:
        return greetings.write({})
    entries = [{field: getattr(peer, field) for field in FIELDS} for peer in roster.peers.all]
    told = {"peers": entries, "founded": roster.founded, "workers": roster.workers}
    payload = greetings.write(told)
    return payload if len(payload) <= MOST_CONTROL else greetings.write({})


def read_answer(data: bytes | memoryview) -> tuple[int, bytes, Any]:
    """Return the number of a question, the run of who answers, and what it says; or raise Refused."""
    run = bytes(data[RUN])
    frame = decode(run, data)
    return frame.number, run, greetings.read(frame.payload)


def read(told: object, run: bytes) -> Roster:
    """Return what a member has told, checked as a peers file is, or say in plain letters what is wrong."""
    if not isinstance(told, dict) or "peers" not in told:
        raise ValueError("it is no worker of a run: a gossamer doctor, perhaps")
    entries = told["peers"]
    if not isinstance(entries, list) or len(entries) > MOST_MEMBERS:
        raise ValueError(f"what it tells is no list of at most {MOST_MEMBERS} peers")
    try:
        peers = peers_of({"peer": entries})
    except ValueError as error:  # it may repeat what came from outside
        raise ValueError(f"what it tells is no peers file: {greetings.plain(str(error))}") from None
    founded, workers = told.get("founded"), told.get("workers")
    if type(founded) is not int or type(workers) is not int or not 1 <= workers <= founded <= len(peers.all):
        raise ValueError("what it tells of the beginning of its run makes no sense")
    return Roster(peers, founded, workers, run)


def entry_of(peers: Peers, key: str) -> Peer | None:
    """Return the entry of a key that is admitted, if there is one."""
    found = peers.by_key(key)
    return None if found is None or found.revoked else found
