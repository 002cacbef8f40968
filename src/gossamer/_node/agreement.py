"""What all workers make sure of before the first round: the same settings, the same start values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from gossamer._node.buckets import Bucket, by_kind, joined, spread
from gossamer.compress.wire import as_bytes
from gossamer.rounds.collectives import broadcast, first_error
from gossamer.transport import Transport, run


@torch.no_grad()
def common_start(
    buckets: list[Bucket], others: Mapping[str, Tensor], transport: Transport, *, broadcasts: bool
) -> bool:
    """Give every worker the values of worker 0: what is trained, what is frozen, and buffers.

    Where all have them already, as from one seed or one file, only a digest is sent. Without
    `broadcasts` all keep what they have. Returns whether all have the same in the end.
    """
    groups = by_kind(others)
    vectors = joined(groups)
    everything = [*(bucket.x for bucket in buckets), *vectors]
    if not _differ(everything, transport):
        return True
    if not broadcasts:
        return False
    for v in everything:
        run(broadcast(transport.rank, transport.everybody, v), transport, "broadcast of the start values")
    spread(groups, vectors)
    return True


def describe_optimizer(optimizer: Optimizer) -> dict[str, str]:
    """Return the optimizer's kind, settings and state as text: nothing else would reveal a difference."""
    state = optimizer.state_dict()["state"]
    groups = {
        f"optimizer.param_groups[{i}].{name}": repr(value)
        for i, group in enumerate(optimizer.param_groups)
        for name, value in group.items()
        if name != "params"
    }
    return {
        "optimizer": type(optimizer).__name__,
        **groups,
        "optimizer.state": _digest(state) if state else "none",
    }


def _differ(vectors: list[Tensor], transport: Transport) -> bool:
    """Return whether any worker's bits differ from worker 0's; the answer is the same on all workers."""
    digest = hashlib.sha256()
    for v in vectors:
        digest.update(as_bytes(v).numpy().data)
    own = torch.tensor(list(digest.digest()), dtype=torch.uint8)
    reference = own.clone()
    run(
        broadcast(transport.rank, transport.everybody, reference),
        transport,
        "comparison of the start values",
    )
    complaint = (own != reference).any().to(torch.uint8).reshape(1)
    run(
        first_error(transport.rank, transport.everybody, complaint),
        transport,
        "comparison of the start values",
    )
    return bool(complaint)


def _digest(state: dict[int, dict[str, Any]]) -> str:
    """Return a short hash of an optimizer's state, which itself may be long."""
    digest = hashlib.sha256()
    for index, values in sorted(state.items()):
        for name, value in values.items():
            digest.update(f"{index} {name} ".encode())
            digest.update(as_bytes(value).numpy().data if isinstance(value, Tensor) else repr(value).encode())
    return digest.hexdigest()[:16]
