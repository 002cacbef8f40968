"""A model's buffers, such as BatchNorm's running statistics.

Every worker gathers its own during training; training itself does not read them. At the start
they are broadcast with the parameters. In `consensus()` the policy decides: "average" takes the
mean over all workers of every floating-point buffer that a state_dict holds, "local" leaves them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from torch import Tensor
from torch.nn import Module

from gossamer._node.buckets import by_kind, joined, spread

BufferPolicy = Literal["average", "local"]


class Buffers:
    """The buffers of a model that `consensus()` averages."""

    def __init__(self, model: Module, policy: str) -> None:
        require_policy(policy)
        self._model, self._policy = model, policy

    def read(self) -> list[Tensor]:
        """Return copies of them, one vector per dtype and device."""
        return joined(self._groups())

    def write(self, vectors: list[Tensor]) -> None:
        """Put back what `read` returned."""
        spread(self._groups(), vectors)

    def dump(self) -> dict[str, Tensor]:
        """Return copies of all that a model's state_dict holds, by name, whatever the policy."""
        return {name: b.detach().clone() for name, b in saved_buffers(self._model).items()}

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """Put back what `dump` returned."""
        buffers = saved_buffers(self._model)
        for name, value in saved.items():
            buffers[name].copy_(value)

    def _groups(self) -> list[dict[str, Tensor]]:
        if self._policy == "local":
            return []
        return by_kind({name: b for name, b in saved_buffers(self._model).items() if b.is_floating_point()})


def require_policy(policy: str) -> None:
    """Raise a ValueError for an unknown policy."""
    if policy not in ("average", "local"):
        raise ValueError(f"buffers={policy!r}: use 'average' or 'local'")


def saved_buffers(model: Module) -> dict[str, Tensor]:
    """Return the buffers that a state_dict holds, by name."""
    saved = model.state_dict().keys()
    return {name: b for name, b in model.named_buffers() if name in saved}
