"""Parameters that are spread over processes, which Gossamer does not train."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def require_whole(tensors: Mapping[str, Tensor]) -> None:
    """Raise a ValueError if a tensor is a DTensor, of which this process may hold only a piece."""
    for name, t in tensors.items():
        placements = getattr(t, "placements", None)  # the class itself takes long to import
        if placements is not None:
            raise ValueError(
                f"'{name}' is a DTensor, placed as {placements}, as fully_shard (FSDP2) and tensor "
                f"parallelism make them; gossip needs whole tensors. Let every process hold the whole model: "
                f"DDP inside a machine, gossip between machines by group=... (docs/hierarchy.md has a script)"
            )
