"""Questions about a member's status, and answers, as they are read: nothing of them is believed unchecked."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from gossamer._mesh import status
from gossamer._mesh.frames import Frame, Kind, Refused, encode


def test_what_is_a_question():
    asked = status.question(7)
    assert status.is_question(asked)
    assert status.is_question(memoryview(asked))
    for run in (bytes(8), b"whatever"):
        assert status.is_question(encode(run, Frame(Kind.ASK, payload=b'{"status": 1}')))
    assert status.is_question(asked[:2] + b"\2" + asked[3:])  # of another version, whatever it is there
    other = encode(bytes(8), Frame(Kind.ASK, epoch=5, payload=b'{"status": 1}'))
    model = encode(bytes(8), Frame(Kind.ASK, payload=b'{"model": 1}'))
    beat = encode(bytes(8), Frame(Kind.BEAT, payload=b'{"status": 1}'))
    damaged = asked[:-1] + b"?"
    for wrong in (b"", asked[:10], other, model, beat, damaged, b"xx" + asked[2:]):
        assert not status.is_question(wrong)


def answered(**changes: Any) -> bytes:
    """Return the frame of an answer, in which some fields are changed."""
    link = status.LinkStatus("w1", True, True, 0.1, 10, 20, 0.02, 1e6, False, 3, {"run": 1}, 0, "")
    seen = status.Seen(0, "w0", "0" * 16, "alive")
    whole = status.MemberStatus(
        "w0", "1.0", "00", "ab", "training", 5, 1e9, [seen], [link], {}, {"no key": 2}
    )
    return encode(bytes(8), Frame(Kind.ASK, number=3, payload=json.dumps(asdict(whole) | changes).encode()))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": 5},
        {"round": -1},
        {"round": 1.5},
        {"round": True},
        {"round": 1 << 63},
        {"time": float("nan")},
        {"time": float("inf")},
        {"time": None},
        {"members": None},
        {"members": [5]},
        {"members": [{"id": 0}]},
        {"members": [{"id": 0, "name": "w0", "key": "0", "status": None}]},
        {"links": [{}]},
        {"links": {}},
        {"refused": {"a": "b"}},
        {"turned_away": [1]},
        {"refused": {str(i): i for i in range(5000)}},
    ],
)
def test_an_answer_that_makes_no_sense_is_refused(changes):
    with pytest.raises(Refused, match="payload"):
        status.read_answer(answered(**changes))


def test_what_is_new_in_an_answer_is_left_out():
    assert status.read_answer(answered(later="something new")) == status.read_answer(answered())


def test_a_missing_field_is_refused():
    payload = encode(bytes(8), Frame(Kind.ASK, payload=b'{"name": "w0"}'))
    with pytest.raises(Refused, match="payload"):
        status.read_answer(payload)


def test_nothing_that_a_terminal_obeys_gets_through():
    wild = "\x1b[2J\x1b]0;owned\x07[bold]\n" * 50
    link = {**asdict(status.read_answer(answered())[1].links[0]), "trouble": wild, "refused": {wild: 1}}
    found = status.read_answer(answered(doing=wild, version=wild, turned_away={wild: 1}, links=[link]))[1]
    texts = [found.doing, found.version, *found.turned_away, found.links[0].trouble, *found.links[0].refused]
    assert all(len(text) <= 200 and text.isprintable() and "[" not in text for text in texts)
