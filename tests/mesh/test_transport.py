"""The mesh as a transport: its contract, and the same bits as the simulation."""

from __future__ import annotations

import pytest
import torch

from gossamer.testing.transports import check_transport
from tests.support.meshes import join, made_up_keys, new_keys, peers_of
from tests.support.problem import simulated, trained
from tests.support.processes import run_processes
from tests.support.same_bits import GRAPHS, STEPS, cases, spread
from tests.support.waiting import LIMIT


def conformance(rank, n, peers, key, connections):
    check_transport(join(peers, rank, key and key[rank], connections=connections, deadline=LIMIT))
    return "ok"


@pytest.mark.parametrize(("encrypted", "connections"), [(False, 1), (True, 1), (True, 4)])
def test_contract(encrypted, connections):
    keys = new_keys(4) if encrypted else made_up_keys(4)
    arguments = (peers_of(keys), keys if encrypted else None, connections)
    assert run_processes(4, conformance, *arguments, group=False) == ["ok"] * 4


def over_mesh(rank, n, peers, name, algorithm, graph, steps, **options):
    transport = join(peers, rank, run=name, deadline=LIMIT)
    x, optimizer = trained(algorithm, graph, steps, transport=transport, **options)
    sent = optimizer.bytes_sent
    optimizer.close()
    return x, sent


def all_over_mesh(rank, n, peers, graph):
    return {
        name: over_mesh(rank, n, peers[name], name, algorithm, GRAPHS[graph], STEPS)
        for name, algorithm in cases(graph).items()
    }


@pytest.mark.parametrize("graph", GRAPHS)
def test_every_algorithm_and_compressor_over_the_mesh(graph):
    n = GRAPHS[graph].n
    peers = {name: peers_of(made_up_keys(n)) for name in cases(graph)}
    results = run_processes(n, all_over_mesh, peers, graph, group=False)
    for name, algorithm in cases(graph).items():
        expected = simulated(algorithm.where_edges_change(), GRAPHS[graph], STEPS)
        for rank, result in enumerate(results):
            assert isinstance(result, dict), results
            x, sent = result[name]
            assert torch.equal(x, expected.x[rank]), f"{name}: worker {rank} differs"
            assert sent == expected.bytes_sent[rank], f"{name}: worker {rank} sent another number of bytes"


def in_flight(rank, n, peers):
    return {
        name: over_mesh(rank, n, peers, name, algorithm, "ring", 2 * STEPS, overlap=2, every=3)
        for name, algorithm in spread().items()
    }


def test_messages_that_fly_during_local_steps():
    results = run_processes(4, in_flight, peers_of(made_up_keys(4)), group=False)
    for name, algorithm in spread().items():
        expected = simulated(algorithm.where_edges_change(), GRAPHS["ring"], 2 * STEPS, every=3, overlap=2)
        for rank, result in enumerate(results):
            assert isinstance(result, dict), result
            assert torch.equal(result[name][0], expected.x[rank]), f"{name}: worker {rank} differs"
