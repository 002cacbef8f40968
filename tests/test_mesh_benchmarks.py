"""What the benchmarks of the mesh make of their measurements."""

from __future__ import annotations

import os
import socket

import pytest
from benchmarks import mesh_link, mesh_members, mesh_rounds, mesh_soak, mesh_speeds
from benchmarks.slow_networks.page import mesh_table


@pytest.mark.parametrize(("size", "milliseconds"), [(1_000, 21.66), (10_000, 36.58), (50_000, 102.88)])
def test_the_limit_of_a_round(size, milliseconds):
    assert mesh_rounds.limit(size) == pytest.approx(milliseconds / 1e3, rel=1e-3)


def test_rounds_are_compared_by_their_means_over_workers_and_turns():
    turns = {kind: [0.03, 0.02] for kind in mesh_rounds.KINDS}
    answers = [{f"{kind} 1000": [a + i / 100 for a in turns[kind]] for kind in turns} for i in (0, 1)]
    row = mesh_rounds.row(1000, answers)
    assert row["mesh ms"] == row["gloo ms"] == 30.0
    assert row["mesh of the limit"] == round(0.030 / mesh_rounds.limit(1000), 3)
    assert row["lowest and highest ms"]["bare zmq"] == [25.0, 35.0]


def test_the_beginning_and_the_end_of_a_stream_do_not_count():
    assert mesh_link.rate([1.0, 5.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 15.1]) == mesh_link.MESSAGE * 8


def test_links_are_compared_by_the_median_ratio():
    row = mesh_link.link_row("stock", 4, [(80e6, 100e6), (90e6, 100e6), (50e6, 50e6)])
    assert (row["mesh Mbit/s"], row["iperf3 Mbit/s"], row["ratio"]) == (80.0, 100.0, 0.9)
    assert row["lowest and highest ratio"] == [0.8, 1.0]


def test_the_ends_of_connections_are_counted():
    before = mesh_members.connections()
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert mesh_members.connections() == before, "it only listens"
        with socket.create_connection(server.getsockname()), server.accept()[0]:
            assert mesh_members.connections() == before + 2


def test_weight_counts_everything_once():
    text = os.urandom(10_000)
    assert 10_000 < mesh_members.weight([text, text]) < 10_300


def test_members_without_sockets_find_each_other_and_are_quiet():
    row = mesh_members.rehearse(8, "ring")
    assert row["links"] == row["degree"] == 2
    assert row["seconds until all know all"] < 2
    assert row["frames a second"] == pytest.approx(2, abs=0.5), "a sign of life to each neighbour"


def test_gloo_and_mesh_take_turns_at_being_first():
    turns = mesh_speeds.turns()
    assert len(set(turns)) == len(turns) == 2 * 5 * mesh_speeds.REPETITIONS
    pairs = list(zip(turns[::2], turns[1::2], strict=True))
    assert all(a[:3] == b[:3] for a, b in pairs), "one right after the other"
    assert [a.over for a, _ in pairs if a[:2] == ("CNN", "D-PSGD")] == ["gloo", "mesh", "gloo"]


def speed(seconds):
    return {"seconds": seconds, "bytes": 1e4, "cpu seconds": 0.01, "steps": 20}


def test_speeds_are_compared_by_the_median_ratio_of_pairs():
    took = [(0.3, 0.2), (0.9, 0.3), (0.2, 0.1)]
    row = mesh_speeds.compared([{"gloo": speed(a), "mesh": speed(b)} for a, b in took], 70)
    assert (row["gloo"]["seconds"], row["mesh"]["seconds"], row["pairs"]) == (0.3, 0.2, 3)
    assert (row["gloo"]["time"], row["mesh"]["time"]) == (21.0, 14.0)
    assert (row["times sooner"], row["lowest and highest"]) == (2.0, [1.5, 3.0])


def test_a_measurement_that_failed_takes_its_pair_with_it():
    found = {t: speed(0.2 if t.over == "gloo" else 0.1) for t in mesh_speeds.turns()}
    del found[mesh_speeds.Turn("CNN", "D-PSGD", 1, "mesh")]
    rows = mesh_speeds.rows("slow", found, {("CNN", "D-PSGD"): 80, ("CNN", "CHOCO, sign"): 70})
    assert {method: (row["pairs"], row["steps"]) for method, row in rows[0]["methods"].items()} == {
        "D-PSGD": (mesh_speeds.REPETITIONS - 1, 80),
        "CHOCO, sign": (mesh_speeds.REPETITIONS, 70),
    }
    assert mesh_table(rows).splitlines()[2] == (
        "| slow: CNN, D-PSGD | 200 | 100 | 16 | 8 | 10 | 10 | **2** (2 to 2) |"
    )


UNDISTURBED = {"algorithm": "dpsgd", "accuracy": [0.96] * 8}
SURVIVED = {
    "algorithm": "dpsgd",
    "accuracy": [0.97] + [0.95] * 7,
    "kills": 9,
    "rejoins": 9,
    "ended": 8,
    "exit codes": [0] * 8,
    "longest wait, s": 6.0,
    "rounds repeated or left out": 0,
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, []),
        ({"kills": 0}, ["dpsgd: nobody was killed"]),
        ({"exit codes": [0] * 7 + [-9]}, ["dpsgd: one did not end well"]),
        ({"longest wait, s": 31.0}, ["dpsgd: one has waited longer than the deadline"]),
        ({"rounds repeated or left out": 1}, ["dpsgd: one has lost a round"]),
        ({"accuracy": [0.949] * 8}, ["dpsgd: the models are worse by a point or more"]),
    ],
)
def test_a_soak_says_what_was_not_as_it_must_be(change, said):
    assert mesh_soak.complaints({**SURVIVED, **change}, UNDISTURBED) == said
