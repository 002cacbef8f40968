"""Parameters as views of flat buffers: one a dtype and device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from gossamer.layout import Layout

T = TypeVar("T", bound=Tensor)


class FlatParameters:
    """Parameters of one dtype and device whose storage is one contiguous vector `x`."""

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        self.parameters = dict(parameters)
        self.layout = Layout.of(self.parameters)
        (self.x,) = joined([self.parameters])
        for p, view in zip(self.parameters.values(), self.layout.views(self.x).values(), strict=True):
            p.data = view
        self._places = [p.data_ptr() for p in self.parameters.values()]

    def require_in_place(self) -> None:
        """Raise a ValueError if a parameter no longer lives in the buffer."""
        for (name, p), place in zip(self.parameters.items(), self._places, strict=True):
            if p.data_ptr() != place:
                raise ValueError(
                    f"parameter '{name}' was moved after gossamer.decentralize; "
                    f"call model.to(...) or .half() first and wrap the optimizer afterwards"
                )

    def gradient(self) -> Tensor:
        """Return the gradients as one vector; zeros where a parameter has none."""
        grads = (p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters.values())
        return torch.cat([g.detach().to(self.layout.dtype).reshape(-1) for g in grads])

    def set_gradient(self, g: Tensor) -> None:
        """Write a vector into the gradients; a tensor of zeros becomes no gradient.

        A rule of the values alone: workers with the same vector treat all parameters alike.
        """
        for p, view in zip(self.parameters.values(), self.layout.views(g).values(), strict=True):
            p.grad = view.clone() if view.any() else None


def flatten(parameters: Mapping[str, Parameter]) -> list[FlatParameters]:
    """Return flat parameters for every dtype and device, in a fixed order."""
    for name, p in parameters.items():
        if not p.dtype.is_floating_point:
            raise ValueError(
                f"parameter '{name}' is {p.dtype}; only real floating-point ones can be averaged"
            )
    return [FlatParameters(group) for group in by_kind(parameters)]


def by_kind(tensors: Mapping[str, T]) -> list[dict[str, T]]:
    """Group tensors by dtype and device, in a fixed order that keeps theirs inside a group."""

    def kind(item: tuple[str, T]) -> tuple[str, str]:
        return str(item[1].dtype), str(item[1].device)

    return [dict(group) for _, group in groupby(sorted(tensors.items(), key=kind), key=kind)]


def joined(groups: list[dict[str, T]]) -> list[Tensor]:
    """Return one vector a group, copied."""
    return [torch.cat([t.detach().reshape(-1) for t in group.values()]) for group in groups]


@torch.no_grad()
def spread(groups: list[dict[str, T]], vectors: list[Tensor]) -> None:
    """Write the vectors of `joined` back into the tensors."""
    for group, vector in zip(groups, vectors, strict=True):
        for t, part in zip(
            group.values(), torch.split(vector, [t.numel() for t in group.values()]), strict=True
        ):
            t.copy_(part.view(t.shape))


def without_gradients(parameters: Iterable[Parameter]) -> dict[Parameter, Tensor]:
    """Take the gradients away from parameters and return them."""
    taken = {p: p.grad for p in parameters if p.grad is not None}
    for p in taken:
        p.grad = None
    return taken
