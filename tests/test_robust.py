"""Training stands rounding: however long a run is, and in half precision."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import gossamer
from gossamer import topology
from gossamer.algorithms import DCD, Choco, DeepSqueeze, PowerGossip
from gossamer.compress import QSGD, Sign
from tests.support.training import CHOCO, batch, small, wrap


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [Choco(Sign(), 0.3), DCD(QSGD(8)), DeepSqueeze(Sign(), 0.05)])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float32, 1e-4), (torch.bfloat16, 0.05)])
def test_rounding_errors_do_not_carry_the_average_away(algorithm, dtype, most):
    """Train, then only gossip: the average must stay, however long."""
    targets = torch.randn(4, 300, generator=torch.Generator().manual_seed(0)).to(dtype)
    lr = [0.05]
    run = gossamer.Simulation(
        {"x": torch.zeros(300, dtype=dtype)},
        topology.ring(4),
        algorithm,
        gradient=lambda rank, p, step: {"x": lr[0] * (p["x"] - 1 - 0.1 * targets[rank])},
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=1.0),
    )
    run.run(300)
    lr[0] = 0.0
    run.run(100)
    before = run.x.double().mean(0)
    run.run(400)
    moved = (run.x.double().mean(0) - before).norm() / before.norm()
    assert moved < most


def test_power_gossip_in_half_precision():
    starts = [{"x": torch.randn(8, 6, generator=torch.Generator().manual_seed(i)).half()} for i in range(4)]
    run = gossamer.Simulation(starts, "ring", PowerGossip(rank=2))
    before = run.consensus_distance()
    run.run(30)
    assert run.consensus_distance() < 0.2 * before


def test_mixed_precision_models_keep_training():
    model = small().to(torch.bfloat16)
    optimizer = wrap(model, algorithm=CHOCO)
    x, y = batch()
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.bfloat16()).float(), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
