"""A worker's checkpoint: its torch optimizer's state, and everything else that it has under one key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer

OWN = "gossamer"


def joined_state(inner: Optimizer, own: dict[str, Any]) -> dict[str, Any]:
    """Return the optimizer's state with `own` in it."""
    return {**inner.state_dict(), OWN: own}


def take_apart(
    state: Mapping[str, Any], settings: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return both parts, or raise a ValueError if it is not such a state or was saved with other settings."""
    if OWN not in state:
        raise ValueError("this is the state of a plain optimizer; load it before gossamer.decentralize")
    inner = dict(state)
    own = inner.pop(OWN)
    if settings is not None:
        _require_same(own["settings"], settings)
    return inner, own


def _require_same(saved: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise a ValueError that names a setting in which a checkpoint and this run differ."""
    for name in [*saved, *(name for name in now if name not in saved)]:
        then, here = saved.get(name, "nothing"), now.get(name, "nothing")
        if then != here:
            raise ValueError(f"the checkpoint was made with {name} = {then}, this run has {here}")
