"""PowerGossip takes small differences of large products, so these must keep their precision."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gossamer import topology
from gossamer.algorithms.edges import products
from tests.support.cases import PLAIN
from tests.support.problem import simulated

POWER_GOSSIP = [name for name in PLAIN if name.startswith("powergossip")]


@pytest.mark.parametrize("name", POWER_GOSSIP)
def test_a_step_inside_autocast_is_the_same_step(name):
    plainly = simulated(PLAIN[name], topology.ring(3), 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16  # it is on
        inside = simulated(PLAIN[name], topology.ring(3), 4)
    assert all(torch.equal(a, b) for a, b in zip(plainly.x, inside.x, strict=True))


class Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("transposed", [False, True])
def test_no_product_is_of_the_kind_that_tf32_is_for(transposed):
    X = [torch.randn(30, 20, dtype=torch.float64), torch.randn(0, 4, dtype=torch.float64)]
    V = [torch.randn(M.shape[0 if transposed else 1], min(3, *M.shape), dtype=torch.float64) for M in X]
    with Recorder() as recorder:
        found = products(X, V, transposed=transposed)
    for y, M, v in zip(found, X, V, strict=True):
        torch.testing.assert_close(y, (M.T if transposed else M) @ v)
    assert "mv" in recorder.names
    assert not recorder.names & {"mm", "addmm", "bmm", "matmul"}
