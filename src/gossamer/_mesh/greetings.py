"""What two members tell each other when they meet, as JSON that is checked field by field."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gossamer._mesh.frames import Refused
from gossamer._mesh.members import Fact

NUMBER = 1 << 63
LONGEST_REASON = 200
MOST_SETTINGS = 100_000


@dataclass(frozen=True)
class Hello:
    """The greeting that opens a link."""

    fact: Fact  # about the sender itself
    mine: int  # the sender's number of this epoch
    theirs: int  # the receiver's, as far as the sender has heard it; 0 if not
    edge: bool  # whether the sender wants to exchange rounds
    settings: str  # a digest of what both must have in common; "" if the sender does not know yet


@dataclass(frozen=True)
class Beat:
    """A sign of life."""

    taken: list[int]  # messages of every stream
    members: int  # digest of the sender's list of members
    edge: bool
    round: int


@dataclass(frozen=True)
class Goodbye:
    """The end of a link."""

    reason: str
    last: list[int]  # the numbers of the sender's last messages; empty if it has lost count of them


def write(value: Hello | Beat | Goodbye | dict[str, Any]) -> bytes:
    """Return the bytes of a greeting, a sign of life or something else that fits into JSON."""
    fields = value if isinstance(value, dict) else vars(value)
    return json.dumps(fields, separators=(",", ":")).encode()


def read(payload: bytes | memoryview) -> Any:  # noqa: ANN401 - it came from outside
    """Return what the bytes hold, or raise Refused."""
    try:
        return json.loads(bytes(payload))
    except (ValueError, RecursionError):
        raise Refused("payload") from None


def read_hello(payload: bytes | memoryview) -> Hello:
    """Return a checked greeting, or raise Refused."""
    fields = _fields(payload, Hello)
    hello = Hello(**fields)
    numbers = (hello.mine, hello.theirs)
    if not all(map(_is_number, numbers)) or not isinstance(hello.settings, str) or len(hello.settings) > 64:
        raise Refused("payload")
    if type(hello.edge) is not bool or not isinstance(hello.fact, list):
        raise Refused("payload")
    return hello


def read_beat(payload: bytes | memoryview, streams: int) -> Beat:
    """Return a checked sign of life, or raise Refused."""
    beat = Beat(**_fields(payload, Beat))
    numbers = beat.taken if isinstance(beat.taken, list) else [None]
    if len(numbers) != streams or not all(map(_is_number, [*numbers, beat.members, beat.round])):
        raise Refused("payload")
    if type(beat.edge) is not bool:
        raise Refused("payload")
    return beat


def read_goodbye(payload: bytes | memoryview, streams: int) -> Goodbye:
    """Return a checked goodbye, its reason in plain letters: it may end in a log."""
    goodbye = Goodbye(**_fields(payload, Goodbye))
    numbers = goodbye.last if isinstance(goodbye.last, list) else [None]
    if len(numbers) not in (0, streams) or not all(map(_is_number, numbers)):
        raise Refused("payload")
    return Goodbye(plain(goodbye.reason), numbers)


def digest(settings: Mapping[str, str]) -> str:
    """Return a short text that is the same for equal settings."""
    return hashlib.sha256(repr(sorted(settings.items())).encode()).hexdigest()[:32]


def read_settings(payload: bytes | memoryview) -> dict[str, str]:
    """Return the settings of a member that has refused this one, in plain letters."""
    fields = read(payload)
    found = fields.get("settings") if isinstance(fields, dict) else None
    if not isinstance(found, dict) or len(found) > MOST_SETTINGS:
        raise Refused("payload")
    return {plain(name): plain(value) for name, value in found.items()}


def read_question(payload: bytes | memoryview) -> int:
    """Return from which piece on a member asks for the model."""
    fields = read(payload)
    first = fields.get("model") if isinstance(fields, dict) else None
    if not _is_number(first):
        raise Refused("payload")
    return int(first)  # type: ignore[arg-type]  # it is a number


def plain(text: object) -> str:
    """Return a peer's words, or what is left of them: short, one line, nothing that a terminal obeys."""
    words = text[:LONGEST_REASON] if isinstance(text, str) else ""
    return "".join(c if c.isascii() and (c.isalnum() or c in " .,:;'()-_/=") else "?" for c in words)


def _fields(payload: bytes | memoryview, kind: type[Hello | Beat | Goodbye]) -> dict[str, Any]:
    fields = read(payload)
    if not isinstance(fields, dict) or set(fields) != set(kind.__dataclass_fields__):
        raise Refused("payload")
    return fields


def _is_number(value: Any) -> bool:  # noqa: ANN401
    return type(value) is int and 0 <= value < NUMBER
