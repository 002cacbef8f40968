"""Simulated time against closed forms, a simulation in small steps, and what must hold for any network."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.compress import wire
from gossamer.network.clock import Clock, drained, fair
from gossamer.network.links import OVERHEAD, Network
from gossamer.rounds.collectives import all_mean, broadcast
from gossamer.rounds.drive import run_together
from gossamer.rounds.phase import Traffic

RATE, LATENCY = 1e7, 0.02
approx = pytest.approx


def posts(n, sizes):
    """Build a phase from {(sender, receiver): bytes}."""
    send = [{j: nbytes for (i, j), nbytes in sizes.items() if i == k} for k in range(n)]
    expect = [{i: nbytes for (i, j), nbytes in sizes.items() if j == k} for k in range(n)]
    return [Traffic(*both) for both in zip(send, expect, strict=True)]


def ring(n, nbytes):
    return posts(n, {(i, (i + d) % n): nbytes for i in range(n) for d in (1, -1)})


def transfer(nbytes, rate=RATE):
    return nbytes * 8 * OVERHEAD / rate


def network(n=8, bandwidth=RATE, latency=LATENCY, **changes):
    return replace(Network.uniform(n, bandwidth, latency), **changes)


def after(net, *phases):
    clock = Clock(net)
    for phase in phases:
        clock.phase(phase)
    return clock.times


@pytest.mark.parametrize(("rendezvous", "latencies"), [(True, 2), (False, 1)])
def test_one_message_and_a_ring_exchange(rendezvous, latencies):
    net = network(rendezvous=rendezvous)
    times = after(net, posts(8, {(2, 5): 100_000}))
    assert times[5] == approx(transfer(100_000) + latencies * LATENCY)
    assert times[2] == approx(transfer(100_000) + (latencies - 1) * LATENCY), "it has left, not arrived"
    assert sum(times) == times[2] + times[5], "nobody else waits"
    assert after(net, ring(8, 100_000)) == approx([2 * transfer(100_000) + latencies * LATENCY] * 8)


def drive(clock, rounds):
    run_together(rounds, clock.phase)
    return clock


@pytest.mark.parametrize("n", [2, 4, 8])
def test_a_ring_all_reduce_and_a_broadcast(n):
    piece = transfer(wire.HEADER.size + 4 * 250)
    clock = drive(Clock(network(n)), [all_mean(rank, range(n), torch.ones(250 * n)) for rank in range(n)])
    assert clock.times == approx([2 * (n - 1) * (piece + 2 * LATENCY)] * n)
    clock = drive(Clock(network(n)), [broadcast(rank, range(n), torch.ones(250)) for rank in range(n)])
    # Whoever waits has sent its notice at the beginning, so that only the first hop waits for one.
    hops = n.bit_length() - 1
    assert clock.now == approx(hops * piece + (hops + 1) * LATENCY)


def test_the_measured_times_of_gloo_on_real_slow_links():
    # Ring exchange at 10 Mbit/s and 20 ms between 8 network namespaces, in seconds (two runs of the first).
    for nbytes, measured in ((100_000, (0.218 + 0.304) / 2), (1_000_000, 1.92)):
        assert max(after(network(), ring(8, nbytes))) == approx(measured, rel=0.25)


def test_the_slower_of_uplink_and_downlink_decides():
    slow_up, slow_down = network(up=(1e6,) * 8), network(down=(1e6,) * 8)
    for net in (slow_up, slow_down):
        assert after(net, posts(8, {(0, 1): 5000}))[1] == approx(transfer(5000, 1e6) + 2 * LATENCY)
        assert after(net, ring(8, 5000)) == approx([2 * transfer(5000, 1e6) + 2 * LATENCY] * 8)
    assert after(slow_down, posts(8, {(0, 1): 5000}))[0] == approx(transfer(5000) + LATENCY)


def test_the_centre_of_a_star_is_limited_by_its_downlink():
    gather = posts(8, {(leaf, 0): 10_000 for leaf in range(1, 8)})
    times = after(network(), gather)
    assert times[0] == approx(7 * transfer(10_000) + 2 * LATENCY)
    assert times[1:] == approx([transfer(10_000) + LATENCY] * 7), "the network holds what is on its way"
    assert drained([(0.0, 10.0, 10.0), (5.0, 6.0, 20.0)], 4.0) == 5 + (5 + 20) / 4, "a trickle beside a rush"
    # Far leaves arrive when the near ones are through, or while the downlink is idle.
    for far in (0.021, 5.0):
        latency = np.full((8, 8), LATENCY)
        latency[7, 0] = far
        expected = max(7 * transfer(10_000) + 2 * LATENCY, LATENCY + far + transfer(10_000))
        assert after(replace(network(), latency=latency), gather)[0] == approx(expected)


def test_a_limited_pair_leaves_its_share_to_the_others():
    net = network(4, limits={(0, 1): 2e6})
    times = after(net, posts(4, {(0, 1): 10_000, (0, 2): 80_000, (0, 3): 80_000}))
    # 2 of 10 Mbit/s for 10 kB, 4 for each of the others; then 5 for each of these.
    first = transfer(10_000, 2e6)
    assert times[1] == approx(first + 2 * LATENCY)
    assert times[2:] == approx([first + transfer(80_000 - 20_000, 5e6) + 2 * LATENCY] * 2)
    assert after(net, posts(4, {(0, 1): 10_000}))[1] == approx(first + 2 * LATENCY)
    assert fair(10.0, [inf, 1.0, 20.0, 4.0]) == approx([3, 1, 3, 3])
    assert fair(inf, [inf, 1.0]) == [inf, 1.0]


def test_messages_share_the_uplink_only_while_both_are_under_way():
    clock = Clock(network(3))
    clock.compute([0.0, 0.0, 0.05])
    clock.phase(posts(3, {(0, 1): 100_000, (0, 2): 100_000}))
    # To 1 alone for 50 ms, then both at half the rate, then to 2 alone with what is left.
    assert clock.times[1] == approx(LATENCY + 0.05 + 2 * (transfer(100_000) - 0.05) + LATENCY)
    assert clock.times[2] == approx(LATENCY + 2 * transfer(100_000) + LATENCY)
    assert clock.times[0] == approx(LATENCY + 2 * transfer(100_000))


@pytest.mark.parametrize("rendezvous", [True, False])
def test_a_straggler_delays_its_neighbours_one_hop_a_round(rendezvous):
    clock, even = Clock(network(rendezvous=rendezvous)), Clock(network(rendezvous=rendezvous))
    clock.compute([10.0] + [0.0] * 7)
    for hops in range(1, 5):
        for c in (clock, even):
            c.compute(0.1)
            c.phase(ring(8, 1000))
        for i, (time, usual) in enumerate(zip(clock.times, even.times, strict=True)):
            assert time > 10 if min(i, 8 - i) <= hops else time <= usual + 1e-9


def test_pushed_phases_queue_for_a_slow_downlink():
    net = network(2, rendezvous=False, down=(RATE, RATE / 10))
    times = after(net, *[posts(2, {(0, 1): 1000})] * 5)
    assert times == approx([5 * transfer(1000), LATENCY + 5 * transfer(1000, RATE / 10)])


def test_messages_fly_while_the_gradient_is_computed():
    flight = 2 * transfer(1000) + 2 * LATENCY
    for work in (0.001, 1.0):
        early, late = Clock(network()), Clock(network())
        early.phase(ring(8, 1000), work)
        late.compute(work)
        late.phase(ring(8, 1000))
        for clock in (early, late):
            clock.phase(ring(8, 1000))
        assert early.times == approx([max(work, flight) + flight] * 8)
        assert late.times == approx([work + 2 * flight] * 8)
    uneven = Clock(network(2))
    uneven.phase(ring(2, 1000), [0.0, 3.0])
    assert uneven.times == approx([transfer(1000) + 2 * LATENCY, 3.0]), "its messages went out before"


def test_nothing_to_send_and_nothing_to_wait_for():
    clock = Clock(network(3))
    clock.compute([1.0, 2.0, 3.0])
    clock.phase(posts(3, {}))
    assert (clock.times, clock.now) == ([1.0, 2.0, 3.0], 3.0)
    assert after(network(2), posts(2, {(0, 1): 0})) == approx([LATENCY, 2 * LATENCY])
    assert after(network(4, "unlimited"), ring(4, 10_000)) == approx([2 * LATENCY] * 4)
    jump = network(4, "unlimited", down=(RATE,) * 4)
    assert after(jump, ring(4, 10_000)) == approx([2 * transfer(10_000) + 2 * LATENCY] * 4)


UNEXPECTED = [Traffic({1: 5}, {}), Traffic({}, {0: 4}), Traffic({}, {})]


@pytest.mark.parametrize(
    ("attempt", "error", "complaint"),
    [
        (lambda clock: clock.compute([1.0, 2.0]), ValueError, "2 computing times for 3 workers"),
        (lambda clock: clock.phase(posts(3, {}), [0.0, -1.0, 0.0]), ValueError, "worker 1 computes for -1"),
        (lambda clock: clock.compute(float("nan")), ValueError, "worker 0 computes for nan"),
        (lambda clock: clock.phase(posts(2, {})), AssertionError, "2 phases for 3 workers"),
        (lambda clock: clock.phase(UNEXPECTED), AssertionError, "worker 1 does not expect 5 bytes from 0"),
    ],
)
def test_mistakes_are_explained(attempt, error, complaint):
    clock = Clock(network(3))
    with pytest.raises(error, match=complaint):
        attempt(clock)
    assert clock.times == [0.0] * 3


N = 4
PAIRS = [(i, j) for i in range(N) for j in range(N) if i != j]
RATES = st.tuples(*[st.floats(1e5, 1e7)] * N)
DELAYS = st.lists(st.lists(st.floats(0, 0.2), min_size=N, max_size=N), min_size=N, max_size=N)
LIMITS = st.dictionaries(st.sampled_from(PAIRS), st.floats(1e5, 1e7), max_size=4)
NETWORKS = st.builds(Network, RATES, RATES, DELAYS, LIMITS, st.booleans())
SIZES = st.dictionaries(st.sampled_from(PAIRS), st.integers(0, 100_000))
WORK = st.lists(st.floats(0, 0.3), min_size=N, max_size=N)
FACTORS = st.lists(st.floats(0.1, 1), min_size=N, max_size=N)


def for_all(*strategies, examples=100):
    return lambda test: settings(max_examples=examples, deadline=None)(given(*strategies)(test))


def run(net, work, *sizes):
    clock = Clock(net)
    for phase in sizes:
        clock.compute(work)
        clock.phase(posts(N, phase))
    return np.array(clock.times)


def not_faster(slow, fast):
    return (slow >= fast - 1e-9).all()


@for_all(NETWORKS, WORK, st.lists(SIZES, min_size=1, max_size=4))
def test_time_never_decreases_and_every_message_takes_its_time(net, work, phases):
    clock = Clock(net)
    for sizes in phases:
        before = clock.times
        clock.phase(posts(N, sizes), work)
        assert not_faster(np.array(clock.times), np.array(before) + work)
        for (i, j), nbytes in sizes.items():
            rate = min(net.up[i], net.down[j], net.limits.get((i, j), inf))
            alone = before[i] + net.latency[i][j] + transfer(nbytes, rate)
            assert clock.times[j] >= alone - 1e-9


@for_all(NETWORKS, WORK, SIZES, st.sampled_from(PAIRS), st.integers(1, 50_000), FACTORS, FACTORS)
def test_more_bytes_or_less_bandwidth_make_nobody_faster(net, work, sizes, pair, more, f, g):
    start = run(net, work, sizes)
    larger = sizes | {pair: sizes.get(pair, 0) + more}
    assert not_faster(run(net, work, larger), start)
    slower = replace(net, up=tuple(np.multiply(net.up, f)), down=tuple(np.multiply(net.down, g)))
    assert not_faster(run(slower, work, sizes), start)


@for_all(NETWORKS, SIZES, st.floats(0, 0.5), DELAYS)
def test_more_latency_makes_nobody_faster(net, sizes, extra, delays):
    # A message that starts later leaves its share to others: so all start as much later, or none does.
    farther = replace(net, latency=np.add(net.latency, extra))
    assert not_faster(run(farther, 0.1, sizes), run(net, 0.1, sizes))
    push = replace(net, rendezvous=False)
    uneven = replace(push, latency=np.add(net.latency, delays))
    assert not_faster(run(uneven, 0.1, sizes), run(push, 0.1, sizes))


@for_all(NETWORKS, WORK, WORK, DELAYS, FACTORS, st.lists(st.integers(0, 10_000), min_size=N, max_size=N))
def test_where_nothing_is_shared_nothing_worse_is_ever_faster(net, work, extra, delays, factors, more):
    shifts = [{(i, (i + d) % N): 1000 for i in range(N)} for d in (1, 2, 3, 1)]
    worse = replace(net, up=tuple(np.multiply(net.up, factors)), latency=np.add(net.latency, delays))
    larger = [{pair: size + more[pair[0]] for pair, size in sizes.items()} for sizes in shifts]
    assert not_faster(run(worse, np.add(work, extra), *larger), run(net, work, *shifts))


@for_all(NETWORKS, WORK, st.lists(SIZES, min_size=1, max_size=3), st.permutations(range(N)))
def test_other_numbers_for_the_workers_change_nothing(net, work, phases, p):
    q = np.argsort(p)  # worker i is called p[i]
    limits = {(p[i], p[j]): rate for (i, j), rate in net.limits.items()}
    up, down = (tuple(np.array(rates)[q]) for rates in (net.up, net.down))
    latency = tuple(map(tuple, np.array(net.latency)[np.ix_(q, q)]))
    renamed = Network(up, down, latency, limits, net.rendezvous)
    sizes = [{(p[i], p[j]): nbytes for (i, j), nbytes in phase.items()} for phase in phases]
    np.testing.assert_allclose(run(renamed, np.array(work)[q], *sizes)[p], run(net, work, *phases), atol=1e-9)


def in_small_steps(net, work, sizes, dt):
    """Move bits forward step by step, over uplinks that share equally and through downlink queues."""
    ready = {(i, j): max(work[i], work[j] + net.latency[j][i] if net.rendezvous else 0) for i, j in sizes}
    left = {pair: nbytes * 8 * OVERHEAD for pair, nbytes in sizes.items()}
    queue, times, k = np.zeros(N), np.array(work), 0
    coming: list[tuple[float, int, float]] = []  # step of arrival, receiver, bits
    while any(left.values()) or coming or queue.any():
        now = (k := k + 1) * dt
        for i in range(N):
            open_ = [pair for pair in left if pair[0] == i and left[pair] and ready[pair] <= now]
            room = net.up[i] * dt
            wish = {pair: min(left[pair], net.limits.get(pair, inf) * dt) for pair in open_}
            for rank, pair in enumerate(sorted(open_, key=wish.__getitem__)):
                moved = min(wish[pair], room / (len(open_) - rank))
                left[pair], room = left[pair] - moved, room - moved
                coming.append((k + net.latency[i][pair[1]] / dt, pair[1], moved))
                times[i] = now
        for _, j, bits in (c for c in coming if c[0] <= k):
            queue[j] += bits
        coming = [c for c in coming if c[0] > k]
        times = np.where(queue > 0, np.maximum(times, now), times)
        queue = np.maximum(queue - np.array(net.down) * dt, 0)
    return times


@for_all(NETWORKS, WORK, st.dictionaries(st.sampled_from(PAIRS), st.integers(1, 20_000)), examples=25)
def test_a_simulation_in_small_steps_agrees(net, work, sizes):
    dt = 2e-3
    np.testing.assert_allclose(run(net, work, sizes), in_small_steps(net, work, sizes, dt), atol=6 * dt)
