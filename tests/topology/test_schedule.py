import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer import topology as tp
from gossamer.topology import Schedule, Topology

SCHEDULES = {
    "one_peer_exponential": tp.one_peer_exponential,
    "random_matching": tp.random_matching,
    "cycle": lambda n: tp.cycle([tp.ring(n), tp.star(n)]),
}
anything = st.sampled_from(sorted(SCHEDULES))
workers = st.integers(1, 40)
rounds = st.integers(0, 10_000)


def product(schedule, length):
    P = np.eye(schedule.n)
    for round_ in range(length):
        P = schedule.at(round_).W @ P
    return P


@settings(deadline=None)
@given(anything, workers, rounds)
def test_every_round_is_doubly_stochastic_and_repeatable(name, n, round_):
    schedule = SCHEDULES[name](n)
    W = schedule.at(round_).W
    assert np.allclose(W.sum(axis=0), 1, rtol=0, atol=1e-12)
    assert np.allclose(W.sum(axis=1), 1, rtol=0, atol=1e-12)
    assert np.array_equal(W, SCHEDULES[name](n).at(round_).W)
    assert schedule.varying
    assert schedule.n == n


@settings(deadline=None)
@given(anything, workers, rounds, st.data())
def test_a_worker_sees_the_graph_of_the_round(name, n, round_, data):
    schedule, rank = SCHEDULES[name](n), data.draw(st.integers(0, n - 1))
    graph = schedule.at(round_)
    assert schedule.weights(rank, round_) == graph.weights(rank)
    assert schedule.senders(rank, round_) == graph.senders(rank)
    assert schedule.receivers(rank, round_) == graph.receivers(rank)


@pytest.mark.parametrize("n", range(1, 40))
def test_one_peer_averages_exactly_in_a_period_iff_n_is_a_power_of_two(n):
    schedule = tp.one_peer_exponential(n)
    assert schedule.period is not None
    power_of_two = n & (n - 1) == 0
    exact = np.array_equal(product(schedule, schedule.period), np.full((n, n), 1 / n))
    assert exact == power_of_two
    if not power_of_two:
        assert not np.allclose(product(schedule, 4 * schedule.period), 1 / n, rtol=0, atol=1e-12)


@settings(deadline=None)
@given(st.integers(2, 40), rounds)
def test_one_peer_sends_to_a_power_of_two_ahead(n, round_):
    schedule = tp.one_peer_exponential(n)
    assert schedule.directed
    assert schedule.period == math.ceil(math.log2(n))
    hop = 2 ** (round_ % schedule.period)
    for rank in range(n):
        assert schedule.receivers(rank, round_) == ((rank + hop) % n,)
        assert schedule.senders(rank, round_) == ((rank - hop) % n,)
        assert set(schedule.weights(rank, round_).values()) == {0.5}


@settings(deadline=None)
@given(workers, st.integers(0, 100), rounds)
def test_a_matching_pairs_all_but_at_most_one(n, seed, round_):
    graph = tp.random_matching(n, seed).at(round_)
    assert len(graph.edges) == n // 2
    assert max(graph.degrees) <= 1
    for rank in range(n):
        weights = graph.weights(rank)
        assert set(weights.values()) == ({0.5} if graph.degrees[rank] else {1.0})


def test_matchings_differ_between_rounds_and_seeds():
    drawn = [tp.random_matching(12, seed).at(k).edges for seed in range(3) for k in range(10)]
    assert len(set(drawn)) == len(drawn)


def test_all_matchings_are_equally_likely():
    schedule = tp.random_matching(4, seed=1)
    counts: dict[tuple[tuple[int, int], ...], int] = {}
    for k in range(3000):
        edges = schedule.at(k).edges
        counts[edges] = counts.get(edges, 0) + 1
    assert len(counts) == 3
    assert all(abs(count - 1000) < 5 * math.sqrt(3000 * 2 / 9) for count in counts.values())


def test_matchings_are_the_same_on_every_machine_and_version():
    drawn = [tp.random_matching(5, seed=7).at(k).edges for k in range(3)]
    assert drawn == [((0, 1), (3, 4)), ((1, 4), (2, 3)), ((0, 4), (1, 2))]


def test_matchings_agree_in_the_long_run():
    assert np.allclose(product(tp.random_matching(7), 200), 1 / 7, rtol=0, atol=1e-9)


def test_a_cycle_takes_its_graphs_in_turn():
    graphs = [tp.ring(4), tp.star(4), tp.complete(4)]
    schedule = tp.cycle(graphs)
    assert [schedule.at(k) for k in range(7)] == [*graphs, *graphs, graphs[0]]
    assert schedule.period == 3
    assert not schedule.directed
    assert tp.cycle([tp.ring(2), tp.one_peer_exponential(2).at(0)]).directed


def test_rounds_of_a_cycle_may_be_disconnected_if_their_union_is_not():
    pairs = [[(0, 1), (2, 3)], [(1, 2), (0, 3)]]
    schedule = tp.cycle([tp.from_edges(edges, n=4, partial=True) for edges in pairs])
    assert np.array_equal(product(schedule, 2), np.full((4, 4), 0.25))


def test_a_union_in_pieces_is_refused():
    pieces = [tp.from_edges([edge], n=4, partial=True) for edge in [(0, 1), (2, 3)]]
    with pytest.raises(
        ValueError, match=r"union of cycle.* over its 2 rounds is disconnected, .*\{0, 1\}, \{2, 3\};"
    ):
        tp.cycle(pieces)


@pytest.mark.parametrize("graphs", [[], [tp.ring(3), tp.ring(4)]])
def test_cycles_need_graphs_of_one_size(graphs):
    with pytest.raises(ValueError, match="a cycle needs at least one graph, and all of one size"):
        tp.cycle(graphs)


@pytest.mark.parametrize("n", [0, 2.0])
@pytest.mark.parametrize("build", [tp.one_peer_exponential, tp.random_matching])
def test_impossible_numbers_of_workers_are_refused(build, n):
    with pytest.raises(ValueError, match="number of workers"):
        build(n)


@pytest.mark.parametrize("round_", [-1, 0.5])
def test_rounds_count_from_zero(round_):
    with pytest.raises(ValueError, match="rounds count from 0"):
        tp.random_matching(4).at(round_)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 3}, r"every round of own must have 3 workers"),
        ({"n": 4, "period": 0}, r"period must be a whole number of at least 1 or None, not 0"),
    ],
)
def test_schedules_that_contradict_their_rounds_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Schedule("own", draw=lambda _: tp.ring(4), **arguments)


def test_an_undirected_schedule_has_no_directed_rounds():
    circle = Topology("circle", np.roll(np.eye(3), 1, axis=0), directed=True)
    with pytest.raises(ValueError, match="directed=False"):
        Schedule("own", 3, lambda _: circle, period=1)


def test_fingerprints_tell_schedules_apart():
    schedules = [
        tp.one_peer_exponential(8),
        tp.one_peer_exponential(7),
        tp.random_matching(8),
        tp.random_matching(8, seed=1),
        tp.cycle([tp.ring(8), tp.star(8)]),
        tp.cycle([tp.star(8), tp.ring(8)]),
    ]
    assert len({schedule.fingerprint() for schedule in schedules}) == len(schedules)
    for schedule in schedules:
        assert schedule.fingerprint() == pickle.loads(pickle.dumps(schedule)).fingerprint()  # noqa: S301


def test_small_matchings_of_different_seeds_have_different_fingerprints():
    prints = [tp.random_matching(3, seed).fingerprint() for seed in range(50)]
    assert all(a != b for a, b in itertools.combinations(prints, 2))
