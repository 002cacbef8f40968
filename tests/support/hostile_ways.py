"""Ways to change a frame that was recorded: on the way, by who repeats it, or by who knows the format.

Each takes the target, whose random numbers and other frames it may use, and a frame; it returns bytes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gossamer._mesh.frames import HEADER, Kind, decode, encode
from gossamer._mesh.link import MOST_AHEAD
from tests.support.rehearsal_worker import RUN

if TYPE_CHECKING:
    from tests.support.hostile_frames import Target

OTHER_RUN = b"elsewher"
STRANGER = "ee" * 32  # a key that nobody knows
WORDS = ["", "\x1b[2J", "\u202e", "\ud800", "a\nb", "../../etc", "x" * 5000, "\0", "0" * 64, "g" * 64, "h:1"]
WHOLE = [0, 1, -1, 3, 1 << 31, 1 << 62, 1 << 63, 1 << 64, 10**4000]
VALUES: list[Any] = [None, True, False, *WHOLE, 0.5, math.nan, math.inf, [], {}, [[]], {"facts": []}, *WORDS]
NUMBERS = [0, 1, 2, 3, MOST_AHEAD, 1 << 20, (1 << 32) - 1, (1 << 63) - 1, (1 << 64) - 1]
WEIGHTS = [0.0, 0.25, 1.0, 2.0, -0.5, math.nan, math.inf]

Way = Callable[["Target", bytes], bytes]


def flip(target: Target, data: bytes) -> bytes:
    """Change a few bits on the way."""
    changed = bytearray(data)
    for _ in range(target.random.randint(1, 4)):
        changed[target.random.randrange(len(changed))] ^= 1 << target.random.randrange(8)
    return bytes(changed)


def cut(target: Target, data: bytes) -> bytes:
    """Lose the end."""
    return data[: target.random.randrange(len(data))]


def grow(target: Target, data: bytes) -> bytes:
    """Gain an end."""
    return data + target.random.randbytes(target.random.choice((1, 4, 68, 3000)))


def noise(target: Target, data: bytes) -> bytes:
    """Send anything, perhaps with the right beginning."""
    return data[: target.random.choice((0, 3, 4, 12, 68))] + target.random.randbytes(
        target.random.randrange(200)
    )


def splice(target: Target, data: bytes) -> bytes:
    """Put one frame's header before another's payload."""
    return data[: HEADER.size] + target.random.choice(target.frames).data[HEADER.size :]


def replay(target: Target, data: bytes) -> bytes:
    """Send a frame again, as it was, out of its order."""
    return data


def other_run(target: Target, data: bytes) -> bytes:
    """Send a frame of another run."""
    return encode(OTHER_RUN, decode(RUN, data))


def edit_field(target: Target, data: bytes) -> bytes:
    """Change a field of the header, and make the checksum right."""
    frame, random = decode(RUN, data), target.random
    near = [frame.number + 1, max(frame.number - 1, 0), frame.number + MOST_AHEAD]
    number = random.choice([*NUMBERS, *near]) & ((1 << 64) - 1)
    changes: dict[str, Any] = {
        "kind": random.choice(list(Kind)),
        "epoch": random.choice(
            [0, frame.epoch ^ 1, number, *(e.epoch for e in target.protocol.links.values())]
        ),
        "number": number,
        "taken": number,
        "round": number,
        "weight": random.choice(WEIGHTS),
        "stream": random.randrange(256),
        "piece": random.choice((0, 1, 5, (1 << 24) - 1)),
        "pieces": random.choice((0, 1, 2, 6, 1 << 24, (1 << 32) - 1)),
        "payload": random.choice((b"", b"{", b"[]", bytes(frame.payload) * 2, random.randbytes(30))),
    }
    names = random.sample(list(changes), random.choice((1, 1, 2, 3)))
    return encode(RUN, replace(frame, **{name: changes[name] for name in names}))


def edit_json(target: Target, data: bytes) -> bytes:
    """Change what a frame says, and make the checksum right."""
    frame = decode(RUN, data)
    try:
        told = json.loads(bytes(frame.payload))
    except ValueError:
        return edit_field(target, data)
    for _ in range(target.random.choice((1, 1, 2))):
        told = _edited(target, told)
    payload = _spelt(target, told)
    return encode(RUN, replace(frame, payload=payload[: 1 << 20]))


def _edited(target: Target, told: Any) -> Any:
    """Return a value with a change somewhere in it."""
    random = target.random
    if isinstance(told, dict) and told and random.random() < 0.8:
        name = random.choice(list(told))
        changed = {**told, name: _edited(target, told[name])}
        if random.random() < 0.15:
            del changed[name]
        if random.random() < 0.15:
            changed[random.choice(WORDS)] = random.choice(VALUES)
        return changed
    if isinstance(told, list) and told and random.random() < 0.8:
        at = random.randrange(len(told))
        changed_one = _edited(target, told[at])
        return random.choice(
            ([*told[:at], changed_one, *told[at + 1 :]], told[:at], [*told, *told], told * 40)
        )
    if isinstance(told, int) and not isinstance(told, bool) and random.random() < 0.5:
        return told + random.choice((-1, 1, 2, 1 << 20))
    return random.choice([*VALUES, *target.keys, STRANGER])


def _spelt(target: Target, told: Any) -> bytes:
    """Return JSON, or something that is nearly JSON, or very deep."""
    chance = target.random.random()
    if chance < 0.05:
        depth = target.random.choice((10, 900, 100_000))
        return b"[" * depth + b"]" * depth
    try:
        text = json.dumps(told, ensure_ascii=target.random.random() < 0.8)
    except ValueError:  # a number of very many digits
        text = "[" + "9" * 5000 + "]"
    if chance < 0.1:
        text = text.replace("0", "1e999", 1)
    return text.encode("utf-16" if chance > 0.97 else "utf-8", "surrogatepass")


ON_THE_WAY: tuple[Way, ...] = (
    flip,
    cut,
    grow,
    noise,
    splice,
    other_run,
)  # their checksums are not made right
WAYS: tuple[Way, ...] = (*ON_THE_WAY, replay, edit_field, edit_field, edit_json, edit_json, edit_json)
