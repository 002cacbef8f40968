"""FSDP2's parameters are refused before anything is touched."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.fsdp
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import gossamer
from tests.support.processes import run_processes
from tests.support.training import batch, small


def sharded_model() -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = small()
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    return model


def pieces(model: nn.Module) -> list[Tensor]:
    sharded: Iterator[Any] = model.parameters()  # each a DTensor
    return [p.to_local() for p in sharded]


def train(rank: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    for step in range(3):
        x, y = batch(rank, step)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()
    return [piece.detach().clone() for piece in pieces(model)]


def wrap_and_train(rank: int, n: int) -> bool:
    plain = sharded_model()
    expected = train(rank, plain, torch.optim.SGD(plain.parameters(), lr=0.1))
    model = sharded_model()
    places = [piece.data_ptr() for piece in pieces(model)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"'0\.weight' is a DTensor.*group=") as caught:
        gossamer.decentralize(optimizer, model, algorithm="dpsgd")
    assert "hierarchy.md" in str(caught.value)
    with pytest.raises(ValueError, match="is a DTensor"):
        gossamer.average(next(model.parameters()))
    assert [piece.data_ptr() for piece in pieces(model)] == places
    after = train(rank, model, optimizer)
    return all(torch.equal(a, b) for a, b in zip(after, expected, strict=True))


@pytest.mark.skipif(not hasattr(dist.fsdp, "fully_shard"), reason="FSDP2 on a CPU came with torch 2.6")
def test_a_sharded_model_is_refused_and_trains_on_as_before():
    assert run_processes(2, wrap_and_train) == [True, True]
