"""What the integrations have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import gossamer


@contextmanager
def needed(package: str) -> Iterator[None]:
    """Say which extra installs a framework that cannot be imported."""
    try:
        yield
    except ImportError as error:
        raise ImportError(f"{error}; to install what is needed: pip install 'gossamer[{package}]'") from error


def require_overrides(mixin: type, kind: type, *own: str) -> None:
    """Raise an ImportError if a framework's class lacks a method that a mixin replaces, all but its `own`.

    A method that was renamed would never be called, and training would silently go wrong.
    """
    for name in vars(mixin).keys() - {*own}:
        if not name.startswith("__") and not hasattr(kind, name):
            raise ImportError(
                f"{kind.__module__}.{kind.__name__} has no {name} in the version that is installed, which "
                f"Gossamer replaces; docs/integrations.md names the versions that it works with"
            )


@contextmanager
def consensus(optimizers: Iterable[gossamer.DecentralizedOptimizer]) -> Iterator[None]:
    """Show the average of all workers' models, whichever optimizers train their parts."""
    with ExitStack() as stack:
        for optimizer in optimizers:
            stack.enter_context(optimizer.consensus())
        yield


def copied(state: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a model's state dict, so that it outlasts consensus(). Tied tensors stay tied.

    Every tensor gets its own memory: when Accelerate writes safetensors, it takes parts of one buffer, as
    Gossamer's parameters are, for the same tensor.
    """
    copies: dict[tuple[object, ...], Tensor] = {}

    def copy(value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        place = (value.data_ptr(), value.shape, value.stride(), value.dtype, value.device)
        return copies.setdefault(place, value.detach().clone())

    return {name: copy(value) for name, value in state.items()}


def agreeing(scaler: torch.amp.GradScaler, device: str) -> torch.amp.GradScaler:
    """Return a scaler with the same settings that skips a step on all workers or on none."""
    if isinstance(scaler, gossamer.GradScaler) or not scaler.is_enabled():
        return scaler
    return gossamer.GradScaler(
        device,
        init_scale=scaler.get_scale(),
        growth_factor=scaler.get_growth_factor(),
        backoff_factor=scaler.get_backoff_factor(),
        growth_interval=scaler.get_growth_interval(),
    )


def worker_file(folder: str | Path, rank: int) -> Path:
    """Return where a worker keeps its part of a checkpoint that is a folder."""
    return Path(folder) / f"worker-{rank}.pt"
