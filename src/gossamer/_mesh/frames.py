"""What travels between two members: a header of 68 bytes and a payload.

offset  bytes  what
0       2      the letters "Gm"
2       1      version of this format, now 1
3       1      kind of the frame
4       8      the run, so that members of two runs never mix
12      8      epoch of the link: both ends' random numbers, combined; 0 before they know them
20      4      CRC-32 of the header without these bytes, and of the payload unless it is a piece of a message
24      4      the phase that a message belongs to, as a CRC-32 of its name
28      8      number of the message in its stream, from 1
36      8      how many messages of the peer's stream were taken
44      8      the sender's round
52      8      a weight: what the sender proposes for the edge in this round
60      4      which stream, and above its byte where in the message this piece begins, in units of PIECE
64      4      how many pieces the message has
68      ...    the payload

A piece of a message has no checksum of its own here: the messages inside have theirs, and CURVE
authenticates every byte.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum

MAGIC = b"Gm"
VERSION = 1
HEADER = struct.Struct("<2sBB8sQIIQQQdII")
PIECE = 1 << 20  # bytes of a message in one frame
MOST_PIECES = 1 << 24
MOST_CONTROL = 1 << 20  # bytes of any frame that is not a piece of a message
CHECKSUM = slice(20, 24)


class Kind(IntEnum):
    """What a frame is for."""

    HELLO = 1  # opens a link; JSON
    REFUSAL = 2  # why a link is not opened; JSON
    BEAT = 3  # a sign of life, and what the sender has taken
    GOODBYE = 4  # ends a link; the payload says why
    DATA = 5  # a piece of a message
    MEMBERS = 6  # who is there; JSON
    ASK = 7  # a question to any member, such as its status; JSON
    DIGEST = 8  # of what the receiver should believe of the sender after message `number`


class Refused(Exception):  # noqa: N818 - frames are refused all the time; nothing is wrong with this end
    """A frame that is not taken; the reason is one of a few words, to be counted."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, checked."""

    kind: Kind
    epoch: int = 0
    phase: int = 0
    number: int = 0
    taken: int = 0
    round: int = 0
    weight: float = 0.0
    stream: int = 0
    piece: int = 0
    pieces: int = 1
    payload: bytes | memoryview = b""


def encode(run: bytes, frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    header = bytearray(
        HEADER.pack(
            MAGIC,
            VERSION,
            frame.kind,
            run,
            frame.epoch,
            0,
            frame.phase,
            frame.number,
            frame.taken,
            frame.round,
            frame.weight,
            frame.stream | frame.piece << 8,
            frame.pieces,
        )
    )
    header[CHECKSUM] = _checksum(header, frame.kind, frame.payload).to_bytes(4, "little")
    return b"".join((header, frame.payload))


def decode(run: bytes, data: bytes | memoryview) -> Frame:
    """Return the frame that the bytes hold, or raise Refused."""
    if len(data) < HEADER.size:
        raise Refused("short")
    fields = HEADER.unpack_from(data)
    magic, version, kind, found, epoch, checksum, phase, number, taken, at, weight, place, pieces = fields
    if magic != MAGIC:
        raise Refused("foreign")
    if version != VERSION:
        raise Refused("version")
    payload = memoryview(data)[HEADER.size :]
    if kind not in _KINDS:
        raise Refused("kind")
    if len(payload) > (PIECE if kind == Kind.DATA else MOST_CONTROL):
        raise Refused("oversized")
    if checksum != _checksum(data[: HEADER.size], kind, payload):
        raise Refused("checksum")
    if found != run:
        raise Refused("run")
    stream, piece = place & 255, place >> 8
    if not 0.0 <= weight <= 1.0 or not 1 <= pieces <= MOST_PIECES or piece >= pieces:
        raise Refused("range")
    if kind == Kind.DATA and piece < pieces - 1 and len(payload) != PIECE:
        raise Refused("length")
    return Frame(Kind(kind), epoch, phase, number, taken, at, weight, stream, piece, pieces, payload)


_KINDS = frozenset(int(kind) for kind in Kind)


def _checksum(header: bytes | bytearray | memoryview, kind: int, payload: bytes | memoryview) -> int:
    view = memoryview(header)
    checksum = zlib.crc32(view[CHECKSUM.stop :], zlib.crc32(view[: CHECKSUM.start]))
    return checksum if kind == Kind.DATA else zlib.crc32(payload, checksum)
