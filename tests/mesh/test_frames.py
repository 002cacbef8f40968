"""Frames: what goes in comes out, and what was changed on the way is refused, with the reason."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer._mesh.frames import (
    CHECKSUM,
    HEADER,
    MOST_CONTROL,
    MOST_PIECES,
    PIECE,
    VERSION,
    Frame,
    Kind,
    Refused,
    decode,
    encode,
)

RUN = b"ourrun.."
BITS = 8 * HEADER.size

numbers = st.integers(0, (1 << 64) - 1)
small = st.integers(0, (1 << 32) - 1)


@st.composite
def frames(draw, kinds=tuple(Kind)):
    kind = draw(st.sampled_from(kinds))
    pieces = draw(st.integers(1, MOST_PIECES))
    # Only the last piece of a message may be short; long ones have a test of their own.
    piece = pieces - 1 if kind == Kind.DATA else draw(st.integers(0, pieces - 1))
    return Frame(
        kind,
        epoch=draw(numbers),
        phase=draw(small),
        number=draw(numbers),
        taken=draw(numbers),
        round=draw(numbers),
        weight=draw(st.floats(0.0, 1.0)),
        stream=draw(st.integers(0, 255)),
        piece=piece,
        pieces=pieces,
        payload=draw(st.binary(max_size=60)),
    )


control = frames(tuple(kind for kind in Kind if kind != Kind.DATA))
data = frames((Kind.DATA,))


def reason(run, sent):
    """Return why bytes are refused; nothing if they are taken."""
    try:
        decode(run, sent)
    except Refused as refusal:
        return str(refusal)
    return ""


def flipped(sent, bit):
    changed = bytearray(sent)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@given(frames())
def test_what_goes_in_comes_out(frame):
    sent = encode(RUN, frame)
    assert len(sent) == HEADER.size + len(frame.payload)
    for received in (decode(RUN, sent), decode(RUN, memoryview(sent))):
        assert received == frame
        assert type(received.kind) is Kind


@given(frames(), st.integers(0, BITS - 1))
def test_every_flipped_bit_of_a_header_is_refused(frame, bit):
    """The first bytes tell by themselves what is wrong, and the checksum covers all others and itself."""
    expected = {0: {"foreign"}, 1: {"foreign"}, 2: {"version"}, 3: {"kind", "checksum"}}
    assert reason(RUN, flipped(encode(RUN, frame), bit)) in expected.get(bit // 8, {"checksum"})


@given(control, st.data())
def test_every_flipped_bit_of_what_is_no_message_is_refused(frame, draws):
    sent = encode(RUN, frame)
    bit = draws.draw(st.integers(BITS, 8 * len(sent) - 1)) if frame.payload else BITS - 1
    assert reason(RUN, flipped(sent, bit)) == "checksum"


@given(data, st.data())
def test_a_piece_of_a_message_has_no_checksum_of_its_own(frame, draws):
    """A flipped bit of it stays in it: the message inside has a checksum, and CURVE authenticates."""
    if not frame.payload:
        return
    sent = encode(RUN, frame)
    bit = draws.draw(st.integers(BITS, 8 * len(sent) - 1))
    received = decode(RUN, flipped(sent, bit))
    assert bytes(received.payload) == flipped(sent, bit)[HEADER.size :] != frame.payload
    assert {**fields(received), "payload": b""} == {**fields(frame), "payload": b""}


def fields(frame):
    return {name: getattr(frame, name) for name in Frame.__slots__}


@given(frames(), st.data())
def test_a_frame_that_is_cut_off_is_refused(frame, draws):
    """Except inside the last piece of a message, whose length nobody else knows."""
    sent = encode(RUN, frame)
    length = draws.draw(st.integers(0, len(sent) - 1))
    if length < HEADER.size:
        assert reason(RUN, sent[:length]) == "short"
    elif frame.kind != Kind.DATA:
        assert reason(RUN, sent[:length]) == "checksum"
    else:
        assert bytes(decode(RUN, sent[:length]).payload) == frame.payload[: length - HEADER.size]


def test_every_piece_but_the_last_is_full():
    first = Frame(Kind.DATA, pieces=2, payload=bytes(PIECE))
    assert decode(RUN, encode(RUN, first)) == first
    assert reason(RUN, encode(RUN, first)[:-1]) == "length"


@given(control, st.binary(min_size=1, max_size=20))
def test_a_frame_that_has_grown_is_refused(frame, more):
    assert reason(RUN, encode(RUN, frame) + more) == "checksum"


@pytest.mark.parametrize("kind", Kind)
def test_a_frame_has_a_largest_size(kind):
    most = PIECE if kind == Kind.DATA else MOST_CONTROL
    assert not reason(RUN, encode(RUN, Frame(kind, payload=bytes(most))))
    assert reason(RUN, encode(RUN, Frame(kind, payload=bytes(most + 1)))) == "oversized"


@given(st.binary(max_size=300))
def test_what_is_no_frame_is_refused(noise):
    assert reason(RUN, noise) in {"short", "foreign"}


@given(frames())
def test_another_run_or_version_or_protocol_is_refused_by_its_name(frame):
    sent = encode(RUN, frame)
    assert reason(b"theirrun", sent) == "run"
    assert reason(RUN, sent[:2] + bytes([VERSION + 1]) + sent[3:]) == "version"
    assert reason(RUN, b"GM" + sent[2:]) == "foreign"


@pytest.mark.parametrize("kind", [0, max(Kind) + 1, 255])
def test_an_unknown_kind_is_refused(kind):
    sent = bytearray(encode(RUN, Frame(Kind.BEAT)))
    sent[3] = kind
    assert reason(RUN, sent) == "kind"


@pytest.mark.parametrize(
    "wrong",
    [
        {"weight": math.nan},
        {"weight": math.inf},
        {"weight": -1e-300},
        {"weight": 1.0 + 1e-15},
        {"pieces": 0},
        {"pieces": MOST_PIECES + 1},
        {"piece": 1, "pieces": 1},
        {"piece": 7, "pieces": 5},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", Kind)
def test_numbers_beyond_their_range_are_refused(kind, wrong):
    assert reason(RUN, encode(RUN, Frame(kind, **wrong))) == "range"


def test_the_documented_offsets():
    """As the table at the top of the module has them, read by hand."""
    frame = Frame(Kind.DATA, 2, 3, 4, 5, 6, 0.5, stream=1, piece=8, pieces=9, payload=b"x")
    sent = encode(RUN, frame)
    assert sent[:4] == b"Gm\x01\x05"
    assert sent[4:12] == RUN
    assert sent[12:20] == (2).to_bytes(8, "little")
    assert (CHECKSUM.start, CHECKSUM.stop) == (20, 24)
    assert sent[24:28] == (3).to_bytes(4, "little")
    for at, value in ((28, 4), (36, 5), (44, 6)):
        assert sent[at : at + 8] == value.to_bytes(8, "little")
    assert sent[52:60] == b"\0\0\0\0\0\0\xe0\x3f"  # one half
    assert sent[60:64] == (1 + (8 << 8)).to_bytes(4, "little")
    assert sent[64:68] == (9).to_bytes(4, "little")
    assert sent[68:] == b"x"
