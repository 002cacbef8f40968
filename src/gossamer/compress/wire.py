"""The frame around every message: 16 bytes that distinguish a valid message from anything else.

offset  bytes  what
0       2      the letters "Gs"
2       1      version of the wire format, now 1
3       1      code of the payload's format; the class that writes it claims it (see FORMATS)
4       4      CRC-32 of the payload, and of the stamp unless it is 0; little-endian
8       5      length of the payload in bytes, little-endian
13      3      a stamp, little-endian: 0, or a number for the neighbours (see docs/wire.md)
16      ...    the payload

The length is inside because a transport may silently deliver a short message into a long
buffer; the checksum because a wrong number in one replica is never corrected.
"""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from gossamer.errors import WireError

MAGIC = b"Gs"
VERSION = 1
HEADER = struct.Struct("<2sBBIQ")  # the last one is the length, and above its 40 bits the stamp
LENGTH_BITS = 40
STAMPS = 1 << 24  # a stamp is a number below this

OTHERS_FROM = 128  # codes below are Gossamer's own
FORMATS: dict[int, str] = {}  # names by code, of the classes imported so far
_OWNERS: dict[int, str] = {}


def claim(code: int, name: str, owner: str) -> int:
    """Reserve a code for a format that `owner`, a class or a module, writes; raise if it is taken."""
    least = 0 if owner.startswith("gossamer.") else OTHERS_FROM
    if not least <= code <= 255:
        raise ValueError(f"{owner} has the wire code {code}: take one from {least} to 255")
    taken = _OWNERS.setdefault(code, owner)
    if taken != owner:
        raise ValueError(f"{owner} has the wire code {code}, which is taken by {taken}: take another")
    FORMATS[code] = name
    return code


def seal(code: int, sections: Iterable[Tensor]) -> Tensor:
    """Frame the sections, one after the other, as one flat uint8 message."""
    body = [as_bytes(section) for section in sections]
    message = torch.cat([torch.empty(HEADER.size, dtype=torch.uint8), *body])
    buffer = message.numpy().data
    payload = buffer[HEADER.size :]
    HEADER.pack_into(buffer, 0, MAGIC, VERSION, code, zlib.crc32(payload), len(payload))
    return message


def unseal(message: Tensor, code: int, nbytes: int) -> Tensor:
    """Return the payload of a message that must have this code and this length in all."""
    if message.dtype != torch.uint8 or message.dim() != 1:
        raise WireError(f"a message is a flat uint8 tensor, not {tuple(message.shape)} of {message.dtype}")
    if message.numel() < HEADER.size:
        raise WireError(f"truncated: {message.numel()} bytes do not even hold the {HEADER.size}-byte header")
    magic, version, found, checksum, length = HEADER.unpack(bytes(message[: HEADER.size].numpy()))
    stamped, length = divmod(length, 1 << LENGTH_BITS)
    if magic != MAGIC:
        raise WireError(f"foreign: it starts with {magic!r}, not with {MAGIC!r}")
    if version != VERSION:
        raise WireError(
            f"wire format {version}, this worker speaks {VERSION}; install one Gossamer everywhere"
        )
    if found != code:
        raise WireError(f"it holds {_format(found)} where {_format(code)} was expected")
    payload = message[HEADER.size :].contiguous()
    if length != payload.numel() or message.numel() != nbytes:
        raise WireError(
            f"truncated or of another model: {length + HEADER.size} bytes announced, "
            f"{message.numel()} received, {nbytes} expected"
        )
    if _checksum(stamped, zlib.crc32(payload.numpy().data)) != checksum:
        raise WireError("corrupted: the checksum does not match")
    return payload


def stamp(message: Tensor, value: int) -> None:
    """Write a number into the header of a sealed message, in place.

    A message that an algorithm wrote without our header stays as it is.
    """
    assert 0 <= value < STAMPS, "a stamp has 24 bits"
    if not _is_sealed(message):
        return
    buffer = message.numpy().data
    *front, checksum, length = HEADER.unpack_from(buffer)
    assert length < 1 << LENGTH_BITS, "a message is stamped once"
    HEADER.pack_into(buffer, 0, *front, _checksum(value, checksum), length + (value << LENGTH_BITS))


def stamp_of(message: Tensor) -> int:
    """Return the number that `stamp` wrote, or 0."""
    return int(HEADER.unpack_from(message.numpy().data)[-1]) >> LENGTH_BITS if _is_sealed(message) else 0


def _is_sealed(message: Tensor) -> bool:
    return message.numel() >= HEADER.size and bytes(message[: len(MAGIC)].numpy()) == MAGIC


def _checksum(stamped: int, checksum: int) -> int:
    """Return the checksum in the header, given that of the payload."""
    return zlib.crc32(stamped.to_bytes(3, "little"), checksum) if stamped else checksum


def as_bytes(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor as a flat uint8 tensor on the host."""
    return in_bytes(tensor.detach().cpu())


def in_bytes(tensor: Tensor) -> Tensor:
    """Return the bytes of a tensor as a flat uint8 tensor, where it is."""
    dense = tensor.detach().contiguous()
    return dense.as_strided((dense.numel(),), (1,)).view(torch.uint8)  # one entry may keep a stride of 2


def from_bytes(section: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the values that `as_bytes` wrote, to be read only: a view, or a copy if they are not aligned."""
    aligned = section.storage_offset() % dtype.itemsize == 0 and section.data_ptr() % dtype.itemsize == 0
    return (section if aligned else section.clone()).view(dtype)


class Reader:
    """Reads a payload section by section; one section may hold the whole payload."""

    def __init__(self, sections: Iterable[Tensor]) -> None:
        self._sections = deque(sections)

    def bytes(self, count: int) -> Tensor:
        """Return the next bytes as they are."""
        section = in_bytes(self._sections.popleft()) if self._sections else torch.empty(0, dtype=torch.uint8)
        if section.numel() < count:  # read in other pieces than it was written in
            section = torch.cat([section, *map(in_bytes, self._sections)])
            self._sections.clear()
        if section.numel() > count:
            self._sections.appendleft(section[count:])
        return section[:count]

    def values(self, count: int, dtype: torch.dtype) -> Tensor:
        """Return the next `count` numbers of this dtype."""
        return from_bytes(self.bytes(count * dtype.itemsize), dtype)


class Message:
    """A message that leaves its sections where they were made until it is sealed.

    The transport seals it: only then are they copied to the host, framed and given a checksum.
    """

    def __init__(self, code: int, sections: Iterable[Tensor]) -> None:
        self.code = code
        self.name = ""  # among the messages of one phase
        self._sections = [section.detach() for section in sections]
        self._sealed: Tensor | None = None
        self.nbytes = HEADER.size + sum(s.numel() * s.dtype.itemsize for s in self._sections)
        self.size_from: Callable[[int], int] = lambda peer: self.nbytes  # what that peer sends in return

    def sealed(self) -> Tensor:
        """Return the message as one flat uint8 tensor on the host: the same one every time."""
        if self._sealed is None:
            self._sealed = seal(self.code, self._sections)
            if all(section.device.type == "cpu" for section in self._sections):
                self._sections = [self._sealed[HEADER.size :]]  # one copy is enough
        return self._sealed

    def payload(self) -> Reader:
        """Return the payload for the sender itself, which has no need to check it."""
        return Reader(self._sections)


def _format(code: int) -> str:
    return FORMATS.get(code, f"unknown format {code}")
