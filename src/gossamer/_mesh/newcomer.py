"""How a member comes into a run: with all others at its beginning, or later, with a model from one of them.

The model travels in pieces. A newcomer takes them from whoever sends them first: if none has come for a
while, it asks another member for the rest. Members differ by a little at any time, so a model whose pieces
are from two of them is as good a start as either.
"""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
from torch import Tensor

from gossamer._mesh.frames import PIECE
from gossamer._mesh.greetings import plain
from gossamer._mesh.link import MODEL, Message
from gossamer._mesh.mechanism import explain
from gossamer._mesh.protocol import Protocol
from gossamer._mesh.transport import MeshTransport, as_tensor
from gossamer._mesh.wiring import Graph, Wiring
from gossamer.errors import MismatchError, PeerTimeout, WireError

CHECK = struct.Struct("<I")  # before every piece: its CRC-32
SIZE = PIECE - CHECK.size  # of a piece
MOST_TIMES = 4  # as much as the model itself: it and what an algorithm keeps of it
Start = Literal["found", "join"]


def meet(transport: MeshTransport, settings: Mapping[str, str], graph: Graph, patience: float) -> Start:
    """Look for the others until all of the peers file are there, or until one says that it trains already.

    Who was added since the others have started is not needed at the beginning: it waits until they train.

    Raises a MismatchError if it trains with other settings, and a PeerTimeout that names who is missing.
    """
    protocol, everybody = transport.protocol, frozenset(transport.everybody)
    with transport.sockets.changed:
        protocol.agree_on(settings)
        protocol.meeting = True
        known = everybody | {transport.rank}
        for peer in Wiring(graph).edges(transport.rank, sorted(known), known):
            protocol.need(peer)
    began = time.monotonic()
    transport.wait_until(lambda p: bool(p.refusals) or p.way_to_begin(everybody) is not None, patience)
    _require_same_settings(protocol)
    with transport.sockets.changed:
        protocol.meeting, way = False, protocol.way_to_begin(everybody)
    if way is None:
        missing = min(everybody - protocol.members.alive() or everybody)
        gone = missing not in protocol.members.alive()
        member, trouble = protocol.members.by_id[missing], transport.sockets.trouble.get(missing, "")
        cause = f"({member.name}) {'is not there' if gone else 'has not begun'}"
        cause += f": {explain(trouble, member.address)}" if trouble else ""
        raise PeerTimeout(missing, "start-up", time.monotonic() - began, cause)
    return way


class Donor:
    """Serves a copy of the model, so that the member's own steps are not held up."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol

    @property
    def wanted(self) -> bool:
        """Whether somebody has asked."""
        return bool(self._protocol.asked)

    def answer(self, lock: AbstractContextManager[Any], model: Tensor, about: dict[str, Any]) -> None:
        """Queue the pieces for all who have asked. The protocol is locked only for that.

        Who asks again, because its line is slow, gets what is still queued for it.
        """
        pieces = [_sealed(json.dumps(about).encode())]
        pieces += [_sealed(part.numpy().tobytes()) for part in model.split(SIZE)]
        with lock:
            while self._protocol.asked:
                peer, first = self._protocol.asked.popleft()
                link = self._protocol.links.get(peer)
                if link is None or link.streams[MODEL].queue or link.streams[MODEL].unclaimed:
                    continue
                for number in [0, *range(max(first, 1), len(pieces))]:
                    self._protocol.post(peer, MODEL, Message(memoryview(pieces[number]), phase=number))


class _Pieces:
    """The pieces that a newcomer has so far: number 0 is about the others."""

    def __init__(self, nbytes: int) -> None:
        self._least = nbytes
        self._have: dict[int, Tensor] = {}
        self._taken: dict[tuple[int, int], int] = {}  # by member and epoch

    @property
    def about(self) -> dict[str, Any]:
        """What the first sender says of the model."""
        about = json.loads(bytes(self._have[0].numpy())) if 0 in self._have else {}
        return about if isinstance(about, dict) else {}

    @property
    def missing(self) -> int | None:
        """The first piece that is not here; None if all are."""
        total = self.about.get("nbytes", self._least)
        if not isinstance(total, int) or not self._least <= total <= MOST_TIMES * self._least:
            raise WireError(f"a model of {total} bytes was offered, {self._least} or a little more expected")
        return next((i for i in range(-(-total // SIZE) + 1) if i not in self._have), None)

    def take(self, protocol: Protocol, peer: int) -> int:
        """Take what has come from a member; return how many pieces were new."""
        key, new = (peer, protocol.links[peer].epoch), 0
        while (found := protocol.take(peer, MODEL, self._taken.get(key, 0) + 1)) is not None:
            self._taken[key] = self._taken.get(key, 0) + 1
            piece = as_tensor(found)
            (check,) = CHECK.unpack_from(piece.numpy().data)
            if zlib.crc32(piece[CHECK.size :].numpy().data) == check and found.phase not in self._have:
                self._have[found.phase] = piece[CHECK.size :]
                new += 1
        return new

    def joined(self) -> Tensor:
        """Return the model."""
        return torch.cat([self._have[i] for i in range(1, len(self._have))])


def receive_model(transport: MeshTransport, nbytes: int, patience: float) -> tuple[Tensor, dict[str, Any]]:
    """Return a model of at least this length from the members, and what its first sender says about it."""
    pieces, turn, asked, began = _Pieces(nbytes), 0, 0.0, time.monotonic()
    donor, epoch = transport.rank, 0  # who was asked last, and when: nobody yet
    protocol, end = transport.protocol, began + patience
    with transport.sockets.changed:
        while (first := pieces.missing) is not None:
            transport.follow_news()
            _require_same_settings(protocol)  # some may have said that they train before they knew
            now = time.monotonic()
            donors = _donors(protocol, turn)
            if sum(pieces.take(protocol, j) for j in donors):
                asked, end = now, now + patience
            elif donors and (now - asked > protocol.timing.silence or not protocol.is_up(donor, epoch)):
                asked, turn = now, turn + 1
                donor = donors[turn % len(donors)]
                epoch = protocol.links[donor].epoch
                protocol.ask_for_model(donor, first)
            left = protocol.members.alive() - protocol.members.waiting()
            if now > end or not left:
                of = min(left or donors or protocol.members.by_id.keys() - {protocol.id})
                raise PeerTimeout(of, "start-up", now - began, "sent no model")
            transport.sockets.wake()
            transport.sockets.changed.wait(0.2)
    return pieces.joined(), pieces.about


def _donors(protocol: Protocol, turn: int) -> list[int]:
    """Return those that train and are in touch; where none is, greet one for the next time."""
    training = sorted(protocol.members.training())
    near = [j for j in training if j in protocol.links and protocol.links[j].up]
    if training and not near:
        protocol.need(training[turn % len(training)])
    return near


def _sealed(piece: bytes) -> bytes:
    return CHECK.pack(zlib.crc32(piece)) + piece


def _require_same_settings(protocol: Protocol) -> None:
    """Raise a MismatchError if a member that trains has refused this one."""
    for peer, theirs in protocol.refusals.items():
        raise _mismatch(protocol.id, protocol.settings, peer, theirs)


def _mismatch(rank: int, mine: Mapping[str, str], peer: int, theirs: Mapping[str, str]) -> MismatchError:
    own = {plain(name): (name, plain(value)) for name, value in mine.items()}
    for name in [*theirs, *own]:
        (known, found), expected = own.get(name, (name, "nothing")), theirs.get(name, "nothing")
        if found != expected:
            return MismatchError(known, rank, found, expected, reference=peer)
    return MismatchError("settings", rank, "others", "its own", reference=peer)
