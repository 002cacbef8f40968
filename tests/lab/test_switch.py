"""The parts of the switch by themselves: what a stretch of a link costs, and packets of many segments."""

from __future__ import annotations

import random
import struct
from math import inf

import pytest

from gossamer.lab.packets import VNET, measure, survivors
from gossamer.lab.switch import Pipe

SEGMENT, HEADERS = 1448, 52


def large(payload, identity=7, sequence=2**32 - 5000, flags=0x98):
    """Build a packet as the kernel hands it over: one header for many segments."""
    vnet = struct.pack("<BBHHHH", 1, 1, HEADERS, SEGMENT, 20, 16)
    ip = struct.pack(
        ">BBHHHBBHII", 0x45, 0, HEADERS + len(payload), identity, 0, 64, 6, 0, 0x0A4D0001, 0x0A4D0002
    )
    tcp = struct.pack(">HHIIBBHHH", 5000, 6000, sequence, 0, 8 << 4, flags, 500, 0, 0) + bytes(12)
    return vnet + ip + tcp + payload


def parse(packet):
    ip = packet[VNET : VNET + 20]
    words = struct.unpack(">10H", ip)
    total = sum(words)
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    sequence = struct.unpack_from(">I", packet, VNET + 24)[0]
    return {
        "length": words[1],
        "identity": words[2],
        "intact": total == 0xFFFF,
        "sequence": sequence,
        "flags": packet[VNET + 33],
        "gso": packet[1],
        "data": packet[VNET + HEADERS :],
    }


def test_the_size_on_a_wire():
    assert measure(large(bytes(10 * SEGMENT))) == (10 * 1500, 10)
    assert measure(large(bytes(10 * SEGMENT + 1))) == (10 * 1500 + HEADERS + 1, 11)
    small = bytes(VNET) + bytes(100)
    assert measure(small) == (100, 1)


@pytest.mark.parametrize("lost", [[], [0], [9], [3], [0, 1, 5], [2, 4, 6, 8], list(range(10))])
def test_lost_segments_leave_packets_that_tcp_understands(lost):
    data = random.Random(1).randbytes(9 * SEGMENT + 100)
    parts = [parse(part) for part in survivors(large(data), lost)]
    base = 2**32 - 5000
    arrived = {}
    for part in parts:
        start = (part["sequence"] - base) % 2**32
        assert part["length"] == HEADERS + len(part["data"])
        assert part["intact"] or not lost
        assert part["identity"] == 7 + start // SEGMENT
        assert part["gso"] == (len(part["data"]) > SEGMENT)
        assert bool(part["flags"] & 0x80) == (start == 0)  # congestion window reduced: said once
        assert bool(part["flags"] & 0x08) == (start + len(part["data"]) == len(data))  # push: the last
        for k in range(0, len(part["data"]), SEGMENT):
            arrived[(start + k) // SEGMENT] = part["data"][k : k + SEGMENT]
    assert sorted(arrived) == [k for k in range(10) if k not in lost]
    assert all(data[k * SEGMENT : (k + 1) * SEGMENT] == piece for k, piece in arrived.items())


def test_equal_stretches_cost_their_time_once():
    one, two, fast = Pipe(8000, 10**6), Pipe(8000, 10**6), Pipe(inf, 10**6)
    carried = one.carry(5, 5, 1000)
    assert carried is not None
    first, last = carried
    assert (first, last) == (5, 6)
    assert two.carry(first, last, 1000) == (5, 6)
    assert fast.carry(first, last, 1000) == (5, 6)
    assert one.carry(5, 5, 1000) == (6, 7)  # it waits for the one before
    assert two.carry(6, 7, 1000) == (6, 7)


def test_a_slower_stretch_behind_a_fast_one():
    slow = Pipe(8000, 10**6)
    assert slow.carry(5.0, 5.1, 1000) == (5, 6)
    assert slow.carry(5.1, 5.2, 1000) == (6, 7)


def test_a_full_queue_loses_packets():
    pipe = Pipe(8000, 3000)
    assert [pipe.carry(0, 0, 1000) is not None for _ in range(6)] == [True, True, True, True, False, False]
    assert pipe.carry(2, 2, 1000) is not None  # two have left


def test_what_waits_goes_on_at_a_new_rate(monkeypatch):
    monkeypatch.setattr("gossamer.lab.switch.time.monotonic", lambda: 0.0)
    pipe = Pipe(8000, 10**6)
    pipe.carry(0, 0, 4000)
    pipe.change(16000)
    assert pipe.carry(0, 0, 2000) == (2, 3)
    pipe.change(inf)
    assert pipe.carry(0, 0, 2000) == (0, 0)
