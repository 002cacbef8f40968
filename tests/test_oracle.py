"""Every algorithm is its own matrix equation: the library against tests/support/oracle.py, in float64."""

from __future__ import annotations

import pytest

from gossamer.algorithms import DPSGD, Choco, PowerGossip
from gossamer.compress import Sign, TopK
from gossamer.topology import chain, complete, cycle, from_edges, one_peer_exponential, random_matching, ring
from tests.support import oracle
from tests.support.cases import COMPRESSED, COMPRESSORS, PLAIN, quiet
from tests.support.oracle_check import (
    ATC,
    CTA,
    GRAPHS,
    LAYOUT,
    OPTIMIZERS,
    ORACLES,
    check,
    check_case,
    draw,
    own,
    power_gossip,
)


def test_every_row_has_an_oracle():
    assert set(ORACLES) == set(COMPRESSED) | set(PLAIN)


@pytest.mark.parametrize("compressor", ["identity", "qsgd-4bit", "topk-qsgd"])
@pytest.mark.parametrize("name", COMPRESSED)
def test_compressed_on_a_ring(name, compressor):
    check_case(name, compressor, GRAPHS["ring"])


@pytest.mark.parametrize("compressor", ["randomk", "lowrank-1"])
@pytest.mark.parametrize("name", COMPRESSED)
def test_compressed_on_an_irregular_graph(name, compressor):
    check_case(name, compressor, GRAPHS["irregular"])


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("name", PLAIN)
def test_plain(name, graph):
    check_case(name, "", GRAPHS[graph])


@pytest.mark.parametrize("compressor", ["topk", "sign"])
@pytest.mark.parametrize("name", COMPRESSED)
def test_with_independent_compressors(name, compressor):
    """Not even the compressor is the library's."""
    C = {"topk": TopK(0.25, raw="never"), "sign": Sign(raw="never")}[compressor]
    independent = {"topk": oracle.top(0.25, LAYOUT.sizes), "sign": oracle.sign(LAYOUT.sizes)}[compressor]
    check(COMPRESSED[name](C), lambda task: ORACLES[name](task, independent), GRAPHS["irregular"])


@pytest.mark.parametrize("name", ORACLES)
def test_local_steps(name):
    check_case(name, "qsgd-8bit", GRAPHS["irregular"], every=3, rounds=20)


VARYING = {
    "one-peer-exponential": one_peer_exponential(4),
    "random-matching": random_matching(5, seed=3),
    "cycle": cycle([ring(5), chain(5), from_edges([(0, 2), (1, 4)], n=5, partial=True)]),
}


@pytest.mark.parametrize("schedule", VARYING)
@pytest.mark.parametrize("name", ORACLES)
def test_graphs_that_change(name, schedule):
    algorithm = PLAIN.get(name) or COMPRESSED[name](COMPRESSORS["topk"])
    graph = VARYING[schedule]
    if not algorithm.varying_graphs or (graph.directed and not algorithm.directed_graphs):
        with pytest.raises(ValueError, match="needs"):
            check_case(name, "topk", graph, rounds=20)
        return
    check_case(name, "topk", graph, rounds=20)


@pytest.mark.parametrize(("optimizer", "every"), [("momentum", 1), ("adam", 3)])
@pytest.mark.parametrize(
    "name",
    [
        "allreduce-quantized",
        "dcd",
        "ecd",
        "choco",
        "choco-overlapped",
        "deepsqueeze",
        "dpsgd",
        "powergossip-2",
    ],
)
def test_optimizers_with_a_memory(name, optimizer, every):
    check_case(name, "qsgd-8bit", GRAPHS["ring"], optimizer=OPTIMIZERS[optimizer], every=every, rounds=15)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name", ORACLES)
def test_few_workers(name, n):
    check_case(name, "qsgd-4bit", complete(n), rounds=20)


@pytest.mark.parametrize("order", [ATC, CTA])
@pytest.mark.parametrize("x_hat", ["start", "zero"])
def test_choco_in_all_its_forms(order, x_hat):
    C = COMPRESSORS["randomk"]
    algorithm = quiet(lambda: Choco(C, gamma=0.2, order=order, x_hat=x_hat))
    check(
        algorithm,
        lambda task: oracle.choco(task, own(C), 0.2, order, x_hat),
        GRAPHS["irregular"],
        every=2,
        rounds=25,
    )


@pytest.mark.parametrize("order", [ATC, CTA])
@pytest.mark.parametrize("gamma", [0.5, 1.3])
def test_dpsgd_in_all_its_forms(order, gamma):
    check(DPSGD(order, gamma), lambda task: oracle.dpsgd(task, order, gamma), ring(5), apart=True)


@pytest.mark.parametrize("order", [ATC, CTA])
@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize(("rank", "sub_steps", "gamma"), [(1, 1, 0.7), (2, 3, 1.0), (3, 2, 1.2)])
def test_power_gossip_in_all_its_forms(order, warm, rank, sub_steps, gamma):
    options = {"sub_steps": sub_steps, "gamma": gamma, "warm": warm, "order": order}
    algorithm = PowerGossip(rank, **options)
    check(algorithm, lambda task: power_gossip(task, draw(rank), **options), ring(4), rounds=25, apart=True)
