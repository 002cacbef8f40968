"""States as plain dicts of tensors and numbers, for checkpoints, and back."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import torch
from torch import Tensor


def dump(state: Any) -> Any:  # noqa: ANN401 - a state is whatever an algorithm keeps
    """Return a copy of a state made of dicts, lists, tensors and numbers only."""
    if isinstance(state, Tensor):
        return state.clone()
    if is_dataclass(state):
        return {f.name: dump(getattr(state, f.name)) for f in fields(state)}
    if isinstance(state, dict):
        return {key: dump(value) for key, value in state.items()}
    if isinstance(state, list):
        return [dump(value) for value in state]
    return state


def load(kind: Any, dumped: Any, device: torch.device) -> Any:  # noqa: ANN401 - a type or a type hint
    """Return a state of this type, such as dict[int, Edge], with copies of the dumped values."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: load(hints[name], value, device) for name, value in dumped.items()})  # type: ignore[operator]
    if get_origin(kind) is dict:
        return {key: load(get_args(kind)[1], value, device) for key, value in dumped.items()}
    if get_origin(kind) is list:
        return [load(get_args(kind)[0], value, device) for value in dumped]
    return dumped.to(device, copy=True) if isinstance(dumped, Tensor) else dumped
