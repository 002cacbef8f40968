"""Checks for what user code may do to a model after it was wrapped, and which would fail silently."""

from __future__ import annotations

import gc
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping

import torch.distributed as dist
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import is_lazy

from gossamer._node.buckets import joined
from gossamer.compress.layout import Layout

WRAP_AFTERWARDS = "change the model first and call gossamer.decentralize afterwards"


class ModelGuard:
    """Remembers which parameters a model had, and which of them were trained or frozen."""

    def __init__(
        self,
        model: Module,
        trained: Mapping[str, Parameter],
        frozen: Mapping[str, Parameter],
        gossiping: Collection[int] | None = None,
    ) -> None:
        self._trained, self._frozen, self._gossiping = trained, frozen, gossiping
        wanted = set(trained.values())
        self._modules: list[tuple[str, Module, str, Module]] = []  # path, parent, name, child
        self._parameters: list[tuple[str, Module, str, Parameter]] = []
        for path, parent in model.named_modules():
            prefix = f"{path}." if path else ""
            for name, child in parent.named_children():
                if not wanted.isdisjoint(child.parameters()):
                    self._modules.append((prefix + name, parent, name, child))
            for name, p in parent.named_parameters(recurse=False):
                if p in wanted:
                    self._parameters.append((prefix + name, parent, name, p))

    def check(self, *, first: bool) -> None:
        """Raise a ValueError if what the optimizer trains is no longer what the model computes with.

        `first` looks for DDP too, which trainers put around a model between wrapping and the first step.
        """
        if first and dist.is_available() and dist.is_initialized():
            refuse_data_parallel(self._trained.values(), self._gossiping)
        for path, parent, name, child in self._modules:
            if parent._modules.get(name) is not child:  # noqa: SLF001 - getattr would search far longer
                raise ValueError(
                    f"module '{path}' was replaced after the optimizer was wrapped, which still trains the "
                    f"old one; {WRAP_AFTERWARDS}"
                )
        for path, parent, name, p in self._parameters:
            if parent._parameters.get(name) is not p:  # noqa: SLF001
                raise ValueError(
                    f"parameter '{path}' was replaced after the optimizer was wrapped, as by "
                    f"load_state_dict(assign=True) or a move to another device, and the optimizer still "
                    f"trains the old one; load without assign=True, or {WRAP_AFTERWARDS}"
                )
        for path, p in self._frozen.items():
            if p.requires_grad:
                raise ValueError(
                    f"parameter '{path}' was frozen when the optimizer was wrapped and would now train on "
                    f"this worker alone; unfreeze it first and wrap the optimizer afterwards"
                )

    def require_values(self, groups: list[dict[str, Parameter]], loaded: list[Tensor]) -> None:
        """Raise a ValueError if parameters are not those that the optimizer's checkpoint has loaded."""
        for group, now, then in zip(groups, joined(groups), loaded, strict=True):
            other = now != then.to(now.device)
            if other.any():
                name = Layout.of(group).tensor_at(int(other.nonzero()[0]))
                raise ValueError(
                    f"parameter '{name}' was changed after optimizer.load_state_dict(), which restores this "
                    f"worker's own parameters; others, such as the average model's, do not match what the "
                    f"neighbours know of it. Load weights before the optimizer's state, or not at all"
                )

    @property
    def frozen_since(self) -> frozenset[str]:
        """The names of parameters that were trained at first and are frozen now."""
        return frozenset(name for name, p in self._trained.items() if not p.requires_grad)


def require_initialized(parameters: Mapping[str, Parameter]) -> None:
    """Raise a ValueError for a lazy layer, which has no shape yet."""
    for name, p in parameters.items():
        if is_lazy(p):
            raise ValueError(
                f"parameter '{name}' of a lazy layer has no shape yet; run a batch through the model once, "
                f"then make the optimizer and wrap it"
            )


def refuse_data_parallel(parameters: Iterable[Parameter], gossiping: Collection[int] | None) -> None:
    """Raise a ValueError if DDP or FSDP is around these parameters and spans workers that gossip.

    `gossiping` are the global ranks that do, None if unknown. A trainer may wrap the same model later and
    elsewhere, so all live objects are searched.
    """
    ours = set(parameters)
    for wrapper in _wrappers():
        if ours.isdisjoint(wrapper.parameters()):
            continue
        averaging = dist.get_process_group_ranks(wrapper.process_group)  # type: ignore[arg-type]
        both = sorted(averaging if gossiping is None else set(averaging) & set(gossiping))
        if len(both) > 1:
            name = type(wrapper).__name__
            raise ValueError(
                f"{name} is around this model and averages all gradients of workers {both}, which gossip: "
                f"both kinds of traffic would be sent. Train the bare model ({name}'s .module) instead. "
                f"For {name} inside a site and gossip between sites, give decentralize(..., group=...) a "
                f"process group that shares only one worker with {name}'s: docs/hierarchy.md"
            )


def holds_data_parallel(model: Module) -> bool:
    """Return whether DDP or FSDP is this model or a part of it."""
    return any(isinstance(module, tuple(_kinds())) for module in model.modules())


def _kinds() -> list[type[Module]]:
    fsdp = getattr(sys.modules.get("torch.distributed.fsdp"), "FullyShardedDataParallel", None)
    return [kind for kind in (DistributedDataParallel, fsdp) if kind is not None]


def _wrappers() -> Iterator[Module]:
    """Find all DDP and FSDP modules of this process, as objects that refer to their class."""
    kinds = _kinds()
    for kind in kinds:
        kinds += kind.__subclasses__()
        for candidate in gc.get_referrers(kind):
            if type(candidate) is kind and hasattr(candidate, "process_group"):
                yield candidate
