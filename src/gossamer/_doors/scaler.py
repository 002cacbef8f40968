"""A gradient scaler for mixed precision whose skipped steps all workers agree on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from gossamer._doors.optimizer import DecentralizedOptimizer


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler for decentralized optimizers: a step is skipped by all workers or by none.

    Torch's own skips a step on the worker whose gradients are not finite, which is then one round behind.
    Here all workers learn of it before the step, by a few bytes along a tree to worker 0 and back, and all
    lower their scale alike.

    Args:
        device: As in torch.amp.GradScaler, like all the others.
        init_scale: The first scale.
        growth_factor: The scale grows by it after `growth_interval` steps that were not skipped.
        backoff_factor: The scale shrinks by it after a step that was skipped.
        growth_interval: Steps between two growths.
        enabled: Whether it does anything.

    Example:
        >>> import torch, gossamer
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> optimizer = gossamer.decentralize(optimizer, model, algorithm="dpsgd")
        >>> scaler = gossamer.GradScaler("cpu", init_scale=8.0)
        >>> scaler.scale(model(torch.ones(1, 4)).sum()).backward()
        >>> _ = scaler.step(optimizer)
        >>> scaler.update()
        >>> optimizer.rounds, scaler.get_scale()
        (1, 8.0)
    """

    def _unscale_grads_(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> dict[torch.device, Tensor]:  # noqa: ANN401
        found: dict[torch.device, Tensor] = super()._unscale_grads_(optimizer, *args, **kwargs)
        inner = getattr(optimizer, "optimizer", optimizer)  # Accelerate's wrapper
        if isinstance(inner, DecentralizedOptimizer):
            anywhere = inner.any_worker(any(bool(value) for value in found.values()))
            for value in found.values():
                value.fill_(float(anywhere))
        return found
