"""What a member tells of itself to whoever is admitted and asks: its round, whom it knows, how its links do.

A question is a frame of kind ASK outside of any link, so it changes nothing in the member, also if it comes
with the key of one whose worker is running. Its run does not matter: the answer says which run it is.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections import Counter
from dataclasses import asdict, dataclass
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from gossamer._mesh import greetings, roster
from gossamer._mesh.frames import HEADER, MAGIC, MOST_CONTROL, VERSION, Frame, Kind, Refused, decode, encode
from gossamer._mesh.greetings import NUMBER, plain
from gossamer._mesh.keys import fingerprint
from gossamer._mesh.link import Link
from gossamer._mesh.members import MOST_MEMBERS
from gossamer._mesh.neighbourhood import DRIFT
from gossamer._mesh.protocol import Protocol
from gossamer._mesh.roster import RUN
from gossamer._mesh.tcp_info import TcpInfo
from gossamer._version import __version__

if TYPE_CHECKING:  # it imports this
    from gossamer._mesh.sockets import Sockets

QUESTION = {"status": 1}
QUESTIONS = (QUESTION, roster.QUESTION)
DOCTOR = "gossamer doctor"  # what a listener does
MOST_REASONS = 50


@dataclass(frozen=True)
class Seen:
    """A member, as another knows it."""

    id: int
    name: str
    key: str  # the short form
    status: str  # alive, suspect, dead or left


@dataclass(frozen=True)
class LinkStatus:
    """One end of a link to a neighbour. Bytes are those of frames, since the member has started."""

    peer: str
    up: bool
    edge: bool  # whether rounds are exchanged along it
    heard: float  # seconds since the last sign of life
    sent: int
    received: int
    round_trip: float | None  # seconds; None where it cannot be measured
    throughput: float | None  # bytes a second
    limited: bool  # whether there was too little to send: the link may be able to do more
    retransmits: int | None
    refused: dict[str, int]  # frames of the peer, by reason
    drift: int  # how often one end was not what the other believed
    trouble: str  # why the peer cannot be reached


@dataclass(frozen=True)
class MemberStatus:
    """All that a member tells."""

    name: str
    version: str  # of gossamer
    run: str  # hex digits; "" if it takes part in none
    settings: str  # a digest of what all must have in common; "" if it does not know yet
    doing: str
    round: int
    time: float  # by its own clock, seconds since 1970
    members: list[Seen]
    links: list[LinkStatus]
    refused: dict[str, int]  # frames of members without a link, and of strangers
    turned_away: dict[str, int]  # connections, by the short form of the key


class Listener(Protocol):
    """A member that takes part in no run: it only lets its sockets answer questions."""

    def heard(self, key: str, data: bytes | memoryview, now: float) -> None:
        """Answer no greeting: others would take this for a worker."""
        self._advance(now)

    def tick(self, now: float) -> None:
        """Let time pass."""
        self._advance(now)


def is_question(data: bytes | memoryview) -> bool:
    """Return whether a frame asks for the status, or for the peers.

    A question of any other version counts, whatever it is: the answer tells its sender the version here.
    """
    if len(data) < HEADER.size or data[:2] != MAGIC or data[3] != Kind.ASK:
        return False
    if data[2] != VERSION:
        return True
    try:
        frame = decode(bytes(data[RUN]), data)
        return frame.epoch == 0 and greetings.read(frame.payload) in QUESTIONS
    except Refused:
        return False


def question(number: int) -> bytes:
    """Return the frame that asks for the status; the answer has the same number."""
    return encode(bytes(8), Frame(Kind.ASK, number=number, payload=greetings.write(QUESTION)))


def answer(sockets: Sockets, asked: memoryview) -> bytes:
    """Return the frame that answers a question; with the lock held."""
    known = decode(bytes(asked[RUN]), asked) if asked[2] == VERSION else Frame(Kind.ASK)
    if known.payload and greetings.read(known.payload) == roster.QUESTION:
        payload = roster.write(sockets.roster())
    else:
        payload = _written(of(sockets))
    return encode(sockets.protocol.run, Frame(Kind.ASK, number=known.number, payload=payload))


def _written(told: MemberStatus) -> bytes:
    """Return the status in bytes; without the links if it is too long."""
    payload = json.dumps(asdict(told), separators=(",", ":")).encode()
    if len(payload) > MOST_CONTROL:
        payload = json.dumps(asdict(dataclasses.replace(told, links=[]))).encode()
    return payload


def read_answer(data: bytes | memoryview) -> tuple[int, MemberStatus]:
    """Return the number of a question and the checked answer to it, in plain letters, or raise Refused."""
    frame = decode(bytes(data[RUN]), data)
    return frame.number, _read(MemberStatus, greetings.read(frame.payload))


def tells_of_drift(data: bytes | memoryview) -> bool:
    """Return whether a frame ends a link because one end was not what the other believed."""
    return len(data) > HEADER.size and data[3] == Kind.GOODBYE and DRIFT.encode() in bytes(data)


def of(sockets: Sockets) -> MemberStatus:
    """Put together what a member tells; with the lock held."""
    protocol = sockets.protocol
    by_name: dict[str, Counter[str]] = {}
    for (name, reason), count in protocol.refused.items():
        by_name.setdefault(name, Counter())[reason] += count
    known = sorted(protocol.members.by_id.values(), key=lambda member: member.id)
    links = [
        _link(sockets, link, by_name.pop(protocol.members.by_id[peer].name, Counter()))
        for peer, link in sorted(protocol.links.items())
    ]
    return MemberStatus(
        name=protocol.members.by_id[protocol.id].name,
        version=__version__,
        run="" if isinstance(protocol, Listener) else protocol.run.hex(),
        settings=greetings.digest(protocol.settings) if protocol.settings else "",
        doing=_doing(protocol),
        round=protocol.round,
        time=time.time(),
        members=[Seen(m.id, m.name, fingerprint(m.key), m.status.name.lower()) for m in known],
        links=links,
        refused=dict(sum(by_name.values(), Counter[str]()).most_common(MOST_REASONS)),
        turned_away=dict(sockets.turned_away.most_common(MOST_REASONS)),
    )


def _doing(protocol: Protocol) -> str:
    if isinstance(protocol, Listener):
        return DOCTOR
    if protocol.leaving:
        return "leaving"
    return "training" if protocol.begun else "waiting" if protocol.meeting else "connected"


def _link(sockets: Sockets, link: Link, refused: Counter[str]) -> LinkStatus:
    protocol, peer = sockets.protocol, link.peer
    channels = [found for lane in sockets.lanes.of(peer) if lane and (found := lane.measured())]
    wires = [wire for channel in channels for wire in channel]
    busiest: list[TcpInfo] = max(channels, key=lambda ch: sum(wire.rate for wire in ch), default=[])
    return LinkStatus(
        peer=protocol.members.by_id[peer].name,
        up=link.up,
        edge=peer in protocol.edges(),
        heard=max(0.0, protocol.now - link.heard),
        sent=sockets.sent[peer],
        received=sockets.received[peer],
        round_trip=min((wire.rtt for wire in wires), default=None),
        throughput=sum(wire.rate for wire in busiest) if busiest else None,
        limited=any(wire.limited for wire in busiest),
        retransmits=sum(wire.retransmits for wire in wires) if wires else None,
        refused=dict(refused.most_common(MOST_REASONS)),
        drift=sockets.drifts[peer],
        trouble="" if link.up else sockets.trouble.get(peer, ""),
    )


def _read(kind: Any, value: Any) -> Any:  # noqa: ANN401 - it came from outside
    """Return a value that is of this kind, with all that is in it, or raise Refused."""
    if dataclasses.is_dataclass(kind):
        hints, found = get_type_hints(kind), _read(dict[str, object], value)
        if not hints.keys() <= found.keys():
            raise Refused("payload")
        return kind(**{name: _read(hint, found[name]) for name, hint in hints.items()})  # type: ignore[operator]
    if isinstance(kind, UnionType):  # with None
        return None if value is None else _read(get_args(kind)[0], value)
    whole, parts = get_origin(kind) or kind, get_args(kind)
    if whole is object:
        return value
    if type(value) is not whole and not (whole is float and type(value) is int):
        raise Refused("payload")
    if whole in (list, dict) and len(value) > MOST_MEMBERS:
        raise Refused("payload")
    if whole is list:
        return [_read(parts[0], each) for each in value]
    if whole is dict:
        return {plain(name): _read(parts[1], each) for name, each in value.items()}
    if whole in (int, float) and not 0 <= value < NUMBER:
        raise Refused("payload")
    return plain(value) if whole is str else value
