"""What a lab's network is really like, measured with TCP before a run: round-trip times and throughputs."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import inf
from statistics import median

from gossamer.lab.lab import Lab
from gossamer.lab.namespaces import inside

PINGS, FIRST = 10, 2  # round trips that count, and those before, while TCP settles
STEADY, WINDOWS = 0.03, 6  # a rate counts once it changes by less, or after so many measurements
AT_ONCE = 1e9  # bit/s that the switch carries in time
PATIENCE = 5.0  # seconds to wait beyond what is expected
CHUNK = 1 << 18

Pair = tuple[int, int]


@dataclass(frozen=True)
class Measurement:
    """Something between two workers, as the scenario says and as measured; None if nothing came through."""

    source: int
    target: int
    wanted: float
    measured: float | None

    @property
    def error(self) -> float | None:
        """Return how far off it is: 0.05 if it is 5 % more than it should be."""
        if self.measured is None or self.wanted in (0, inf):
            return None
        return self.measured / self.wanted - 1


@dataclass(frozen=True)
class Measured:
    """Round-trip times in seconds, and throughputs in bit/s, with the headers of the packets."""

    round_trips: tuple[Measurement, ...]
    throughputs: tuple[Measurement, ...]


def measure(lab: Lab, pairs: Sequence[Pair] | None = None) -> Measured:
    """Measure some links of a lab before its workers start: those of sample_pairs, or the given ones."""
    chosen = sample_pairs(lab.n) if pairs is None else list(pairs)
    trips = _all_at_once(lambda pair: _round_trip(lab, *pair), chosen)
    rates: list[Measurement] = []
    for batch in _batches(lab, chosen):
        rates += _all_at_once(lambda pair: _throughput(lab, *pair), batch)
    rates.sort(key=lambda rate: chosen.index((rate.source, rate.target)))
    return Measured(tuple(trips), tuple(rates))


def sample_pairs(n: int, most: int = 8) -> list[Pair]:
    """Return pairs that represent a network: each worker and the next, at most `most` of them."""
    chosen = sorted({k * n // most for k in range(most)})
    return [(i, (i + 1) % n) for i in chosen] if n > 1 else []


def wanted_round_trip(lab: Lab, i: int, j: int) -> float:
    """Return how long the scenario lets a packet take there and back."""
    latency = lab.scenario.network.latency
    return latency[i][j] + latency[j][i]


def wanted_throughput(lab: Lab, i: int, j: int) -> float:
    """Return how many bit/s the scenario lets pass from i to j."""
    network = lab.scenario.network
    return min(network.up[i], network.down[j], network.limits.get((i, j), inf))


def _round_trip(lab: Lab, i: int, j: int) -> Measurement:
    wanted = wanted_round_trip(lab, i, j)
    times: list[float] = []
    with suppress(OSError), _connection(lab, i, j) as (near, far):
        for _ in range(FIRST + PINGS):
            start = time.monotonic()
            for one, other in ((near, far), (far, near)):
                one.sendall(b".")
                other.recv(1)
            times.append(time.monotonic() - start)
    measured = median(times[FIRST:]) if len(times) > FIRST else None
    return Measurement(i, j, wanted, measured)


def _throughput(lab: Lab, i: int, j: int) -> Measurement:
    wanted, trip = wanted_throughput(lab, i, j), wanted_round_trip(lab, i, j)
    skipped = max(0.1, 10 * trip)  # TCP looks for the rate, and overshoots at first
    window = max(0.15, 4 * trip, 50 * 1500 * 8 / wanted)
    rate: float | None = None
    with suppress(OSError), _connection(lab, i, j) as (near, far):
        sender = threading.Thread(target=_flood, args=(near,))
        sender.start()
        try:
            rate = _receive(far, skipped, window) * lab.scenario.network.overhead
        finally:
            near.shutdown(socket.SHUT_RDWR)
            sender.join()
    time.sleep(2 * trip)  # until packets in flight have arrived
    return Measurement(i, j, wanted, rate)


def _flood(near: socket.socket) -> None:
    data = bytes(CHUNK)
    with suppress(OSError):  # until it is closed
        while True:
            near.sendall(data)


def _receive(far: socket.socket, skipped: float, window: float) -> float:
    """Return the bit/s of payload once the rate is steady, after the first `skipped` seconds."""
    buffer = bytearray(4 * CHUNK)
    _count(far, buffer, skipped)
    rates = [_count(far, buffer, window), _count(far, buffer, window)]
    while len(rates) < WINDOWS and abs(rates[-1] - rates[-2]) > STEADY * rates[-1]:
        rates.append(_count(far, buffer, window))
    return median(rates[-3:])


def _count(far: socket.socket, buffer: bytearray, duration: float) -> float:
    begin = now = time.monotonic()
    total = 0
    while now < begin + duration:
        total += far.recv_into(buffer)
        now = time.monotonic()
    return total * 8 / (now - begin)


@contextmanager
def _connection(lab: Lab, i: int, j: int) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Connect i and j; both ends are in this process, though in different namespaces."""
    patience = PATIENCE + 4 * wanted_round_trip(lab, i, j)
    with inside(lab.namespace(j), lambda: socket.create_server((lab.address(j), 0))) as server:
        server.settimeout(patience)
        there = server.getsockname()
        near = inside(lab.namespace(i), lambda: socket.create_connection(there, patience))
        with near, server.accept()[0] as far:
            for end in (near, far):
                end.settimeout(patience)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # Drop unsent data when the socket is closed: it would delay the run.
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            yield near, far


def _all_at_once(work: Callable[[Pair], Measurement], pairs: Sequence[Pair]) -> list[Measurement]:
    with ThreadPoolExecutor(max(len(pairs), 1), initializer=_hurry) as pool:
        return list(pool.map(work, pairs))


def _hurry() -> None:
    """Give this thread priority over other processes, which should not influence what is measured."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def _batches(lab: Lab, pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Group pairs that can be measured together.

    No worker is in two pairs, or acknowledgements would queue behind another pair's data; and together they
    send no more than the switch carries.
    """
    batches: list[list[Pair]] = []
    for i, j in sorted(pairs, key=lambda pair: wanted_throughput(lab, *pair)):
        rate = wanted_throughput(lab, i, j)
        for batch in batches:
            free = all({i, j}.isdisjoint(other) for other in batch)
            if free and rate + sum(wanted_throughput(lab, *pair) for pair in batch) <= AT_ONCE:
                batch.append((i, j))
                break
        else:
            batches.append([(i, j)])
    return batches
