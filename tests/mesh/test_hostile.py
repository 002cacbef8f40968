"""Frames that nobody should send: see tests/support/hostile_frames.py for what they must never do.

More of them: python -m benchmarks.hostile_frames --frames 1000000
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from gossamer._mesh.members import Member, Status
from gossamer._mesh.protocol import Protocol
from tests.support.hostile_frames import Target
from tests.support.hostile_ways import WAYS
from tests.support.rehearsal_checks import TIMING
from tests.support.rehearsal_worker import RUN

TARGETS, FRAMES = 25, 200  # in each batch
KEPT = json.loads((Path(__file__).parents[1] / "data" / "mesh_frames.json").read_text())
REASONS = (
    *("ahead", "checksum", "claim", "duplicate", "epoch", "foreign", "identity", "kind", "length", "members"),
    *("own key", "payload", "range", "run", "short", "stale", "stream", "unknown", "version"),
)


@pytest.mark.parametrize("batch", range(5))
def test_hostile_frames_do_no_harm(batch):
    """Each target is a member in the middle of its work; every way of changing frames was tried on it."""
    counts: Counter[str] = Counter()
    for seed in range(batch * TARGETS, (batch + 1) * TARGETS):
        counts += Target(seed).attack(FRAMES)
    tried = [counts[f"tried: {way.__name__}"] for way in WAYS]
    assert min(tried) > FRAMES
    never = [reason for reason in REASONS if not counts[f"refused: {reason}"]]
    assert not never, f"nothing was refused as {never}"


def test_the_attacks_can_see_what_is_stored():
    """What a member may send is stored now and then, and noticed: so would be what it may not."""
    assert any(Target(seed).attack(FRAMES)["stored"] for seed in range(5 * TARGETS))


def new_protocol():
    """Return a member that knows two others, and has met nobody."""
    known = [Member(i, f"{i:064x}", f"w{i}", f"h{i}:1") for i in range(3)]
    own = Member(0, known[0].key, "w0", "h0:1", 5, Status.WAITING)
    return Protocol(own, known[1:], RUN, lambda: 9, 0.0, TIMING)


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept["what"])
def test_a_frame_that_is_kept_is_refused_for_its_reason_and_changes_nothing(kept):
    """Some of these have done harm; the others are at the edges of what is allowed."""
    protocol = new_protocol()
    before = dict(protocol.members.by_id)
    protocol.heard(f"{1:064x}", bytes.fromhex(kept["hex"]), 1.0)
    assert protocol.refused == {("w1", kept["reason"]): 1}
    assert protocol.members.by_id == before
    assert not protocol.links
    assert not protocol.out


@pytest.mark.parametrize("kept", KEPT, ids=lambda kept: kept["what"])
def test_a_stranger_is_not_heard_beyond_its_greeting(kept):
    protocol = new_protocol()
    protocol.heard("ee" * 32, bytes.fromhex(kept["hex"]), 1.0)
    ((name, reason),) = protocol.refused
    assert name == "stranger"
    assert reason in {kept["reason"], "unknown", "identity"}
    assert not protocol.links
    assert not protocol.out


def test_a_question_that_is_repeated_is_answered_once():
    """Each answer is a whole model."""
    target = next(target for target in map(Target, range(20)) if target.protocol.edges())
    protocol = target.protocol
    peer = min(protocol.edges())
    for first in range(50):
        sender = new_protocol()
        sender.links[peer] = protocol.links[peer]  # it has the right epoch
        sender.ask_for_model(peer, first)
        protocol.heard(protocol.members.by_id[peer].key, sender.out[-1].data, target.now)
    assert list(protocol.asked) == [(peer, 49)]
