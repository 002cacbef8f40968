"""Parameters as flat vectors: one per dtype and device."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils.dlpack import from_dlpack

from gossamer.compress.layout import Layout

T = TypeVar("T", bound=Tensor)


class Bucket:
    """Parameters of one dtype and device, and a contiguous vector `x` of them.

    `x` is their storage: they are views of it. Where that would change their order in memory, as with
    channels_last, `x` is a mirror: `take_back` reads the parameters, `give` writes them.
    """

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        self.parameters = dict(parameters)
        self.layout = Layout.of(self.parameters)
        (self.x,) = joined([self.parameters])
        self.is_mirror = not all(p.is_contiguous() for p in self.parameters.values())
        self._views = list(self.layout.views(self.x).values())
        if not self.is_mirror:
            for p, view in zip(self.parameters.values(), self._views, strict=True):
                p.data = _with_own_storage(view)

    def take_back(self) -> None:
        """Read the parameters that are not stored in `x`: a mirror's, or those that were copied elsewhere.

        model.to("cpu:0") makes such copies. Raises a ValueError, before anything is changed, if a parameter
        has another dtype, device or shape now.
        """
        pairs = zip(self.parameters.items(), self._views, strict=True)
        moved = [(name, p, view) for (name, p), view in pairs if p.data_ptr() != view.data_ptr()]
        for name, p, view in moved:
            before, now = _kind(view), _kind(p)
            if before != now:
                raise ValueError(
                    f"parameter '{name}' was {before} when the optimizer was wrapped and is {now} now; "
                    f"convert or move the model first and call gossamer.decentralize afterwards"
                )
        with torch.no_grad():
            for _, p, view in moved:
                view.copy_(p)
                if not self.is_mirror:
                    p.data = _with_own_storage(view)

    def give(self) -> None:
        """Write `x` into a mirror's parameters."""
        if self.is_mirror:
            spread([self.parameters], [self.x])

    def gradient(self) -> Tensor:
        """Return the gradients as one vector; zeros where a parameter has none."""
        grads = (p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters.values())
        dense = (g.to_dense() if g.is_sparse else g for g in grads)
        return torch.cat([g.detach().to(self.layout.dtype).reshape(-1) for g in dense])

    def set_gradient(self, g: Tensor) -> None:
        """Write a vector into the gradients; an all-zero tensor is stored as grad=None.

        Deciding by value, not by which worker had a gradient, keeps all workers' optimizers in step.
        """
        for p, view in zip(self.parameters.values(), self.layout.views(g).values(), strict=True):
            p.grad = view.clone() if view.any() else None


def _with_own_storage(view: Tensor) -> Tensor:
    """Return a tensor of the same memory whose storage is no larger than it is.

    torch.save writes a tensor's whole storage, and code that looks for tied weights compares storages: with
    one shared storage, all parameters would be saved with each of them, or dropped as duplicates.
    """
    try:
        return from_dlpack(view)
    except (BufferError, RuntimeError):  # a dtype or device that DLPack does not know
        return view


def _kind(t: Tensor) -> str:
    device = t.device if t.device.type != "cpu" else "cpu"  # "cpu:0" is the same place
    return f"{tuple(t.shape)} {t.dtype} on {device}"


def make_buckets(parameters: Mapping[str, Parameter]) -> list[Bucket]:
    """Return one bucket per dtype and device, in a fixed order."""
    for name, p in parameters.items():
        if not p.dtype.is_floating_point:
            raise ValueError(
                f"parameter '{name}' is {p.dtype}; only real floating-point ones can be averaged"
            )
    return [Bucket(group) for group in by_kind(parameters)]


def by_kind(tensors: Mapping[str, T]) -> list[dict[str, T]]:
    """Group tensors by dtype and device, groups in a fixed order, tensors of a group in the given order."""

    def kind(item: tuple[str, T]) -> tuple[str, str]:
        return str(item[1].dtype), str(item[1].device)

    return [dict(group) for _, group in groupby(sorted(tensors.items(), key=kind), key=kind)]


def joined(groups: list[dict[str, T]]) -> list[Tensor]:
    """Return one vector per group, as a copy."""
    return [torch.cat([t.detach().reshape(-1) for t in group.values()]) for group in groups]


@torch.no_grad()
def spread(groups: list[dict[str, T]], vectors: list[Tensor]) -> None:
    """Write the vectors of `joined` back into the tensors."""
    for group, vector in zip(groups, vectors, strict=True):
        for t, part in zip(
            group.values(), torch.split(vector, [t.numel() for t in group.values()]), strict=True
        ):
            t.copy_(part.view(t.shape))
