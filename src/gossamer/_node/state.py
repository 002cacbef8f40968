"""States as trees of tensors and numbers: dumped for checkpoints, and cut down to some of the tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from gossamer.compress.layout import Layout


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


def cut(state: Any, layout: Layout, which: Sequence[int]) -> Any:  # noqa: ANN401 - a state
    """Return the state of some of the layout's tensors: every flat vector of it, cut down to them.

    A dataclass that keeps something else for every tensor has its own methods `cut` and `paste`.
    """
    if isinstance(state, Tensor) and _is_flat(state, layout):
        parts = layout.split(state)
        return torch.cat([parts[i] for i in which])
    if hasattr(state, "cut"):
        return state.cut(layout, which)
    if is_dataclass(state):
        return _rebuilt(state, lambda name: cut(getattr(state, name), layout, which))
    if isinstance(state, dict):
        return {key: cut(value, layout, which) for key, value in state.items()}
    return state


def paste(whole: Any, part: Any, layout: Layout, which: Sequence[int]) -> Any:  # noqa: ANN401 - states
    """Return the whole state with what `cut` took from it put back, as it is now.

    What a dict holds only in the part, such as an edge that was added meanwhile, is left out.
    """
    if isinstance(whole, Tensor) and _is_flat(whole, layout):
        pieces = list(layout.split(whole))
        for i, piece in zip(which, layout.pick(which).split(part), strict=True):
            pieces[i] = piece
        return torch.cat(pieces)
    if hasattr(whole, "paste"):
        return whole.paste(part, layout, which)
    if is_dataclass(whole):
        return _rebuilt(whole, lambda name: paste(getattr(whole, name), getattr(part, name), layout, which))
    if isinstance(whole, dict):
        return {k: paste(v, part[k], layout, which) if k in part else v for k, v in whole.items()}
    return part


def _rebuilt(state: Any, value: Callable[[str], Any]) -> Any:  # noqa: ANN401 - a dataclass
    return type(state)(**{f.name: value(f.name) for f in fields(state)})


def _is_flat(value: Tensor, layout: Layout) -> bool:
    return value.dim() == 1 and value.numel() == layout.size
