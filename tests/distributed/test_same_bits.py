"""Simulated and real workers compute the same bits and send the same bytes."""

from __future__ import annotations

import pytest
import torch

from gossamer import topology
from tests.support.cases import COMPRESSED, COMPRESSORS, PLAIN
from tests.support.problem import simulated
from tests.support.processes import run_processes, torchrun
from tests.support.same_bits import GRAPHS, STEPS, all_cases, cases, spread, varied


@pytest.mark.parametrize("graph", GRAPHS)
def test_every_algorithm_and_compressor_over_gloo(graph):
    results = run_processes(GRAPHS[graph].n, all_cases, graph)
    for name, algorithm in cases(graph).items():
        expected = simulated(algorithm, GRAPHS[graph], STEPS)
        for rank, result in enumerate(results):
            assert isinstance(result, dict), result
            x, sent = result[name]
            assert torch.equal(x, expected.x[rank]), f"{name}: worker {rank} differs"
            assert sent == expected.bytes_sent[rank], f"{name}: worker {rank} sent another number of bytes"


def test_changing_graphs_local_steps_and_overlap_over_gloo():
    results = run_processes(4, varied)
    matching, ring = topology.random_matching(4), topology.ring(4)
    choco = COMPRESSED["choco-overlapped"](COMPRESSORS["topk"])
    expected = {
        name: simulated(PLAIN[name], matching, STEPS) for name in ("dpsgd", "powergossip", "allreduce")
    }
    expected["every"] = simulated(PLAIN["allreduce"], ring, STEPS, every=2)
    for name in ("dpsgd", "powergossip-overlapped"):
        expected[f"overlap {name}"] = simulated(PLAIN[name], ring, STEPS)
    expected["overlap choco"] = simulated(choco, ring, STEPS)
    expected["overlap every"] = simulated(choco, ring, STEPS, every=2)
    expected |= {name: simulated(a, ring, 2 * STEPS, every=3, overlap=2) for name, a in spread().items()}
    for rank, result in enumerate(results):
        assert isinstance(result, dict), result
        for name, run in expected.items():
            assert torch.equal(result[name], run.x[rank]), f"{name}: worker {rank} differs"


def test_over_torchrun(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import os, torch\n"
        "from tests.support.cases import COMPRESSED, COMPRESSORS\n"
        "from tests.support.problem import trained\n"
        "choco = COMPRESSED['choco'](COMPRESSORS['topk-fp16'])\n"
        f"x, optimizer = trained(choco, 'ring', {STEPS})\n"
        f"torch.save(x, {str(tmp_path)!r} + f'/{{optimizer.rank}}.pt')\n"
    )
    torchrun(script, tmp_path, n=4)
    expected = simulated(COMPRESSED["choco"](COMPRESSORS["topk-fp16"]), topology.ring(4), STEPS)
    for rank in range(4):
        assert torch.equal(torch.load(tmp_path / f"{rank}.pt", weights_only=True), expected.x[rank])
