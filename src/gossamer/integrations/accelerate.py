"""Hugging Face Accelerate: an Accelerator whose workers gossip, in place of DDP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

import gossamer
from gossamer.integrations.shared import agreeing, consensus, copied, needed, worker_file

with needed("accelerate"):
    from accelerate import Accelerator
    from accelerate.utils import DistributedType

SHARDED = {DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM}


class GossamerAccelerator(Accelerator):
    """An Accelerator that decentralizes the optimizers it prepares and puts no DDP around the models.

    `decentralize` holds the arguments of `gossamer.decentralize`. All workers call `save_state`,
    `save_model` and `get_state_dict`, which are about the average model, and `consensus`, which shows it.
    """

    _optimizers: list[Any]  # Accelerate's

    def __init__(self, *args: Any, decentralize: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        make_ready(self)
        self._options = dict(decentralize or {})
        self._folder = ""  # where load_state has found its checkpoint
        self.register_load_state_pre_hook(self._before_load)

    @property
    def decentralized(self) -> list[gossamer.DecentralizedOptimizer]:
        """The optimizers that were prepared, without Accelerate's wrapper."""
        return [prepared.optimizer for prepared in self._optimizers]

    def prepare(self, *args: Any, device_placement: list[bool] | None = None) -> Any:
        """Prepare models before optimizers, whatever the order: an optimizer is wrapped with its model."""
        places: list[bool | None] = [*device_placement] if device_placement else [None] * len(args)
        order = sorted(range(len(args)), key=lambda i: not isinstance(args[i], Module))
        done = super().prepare(*(args[i] for i in order), device_placement=[places[i] for i in order])
        if len(args) == 1:
            return done
        return tuple(done[order.index(i)] for i in range(len(args)))

    def prepare_model(
        self, model: Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> Module:
        """Move, autocast and compile a model as Accelerate does, without DDP: as for evaluation."""
        del evaluation_mode
        return super().prepare_model(model, device_placement, evaluation_mode=True)  # type: ignore[no-any-return]

    def prepare_optimizer(self, optimizer: Optimizer, device_placement: bool | None = None) -> Optimizer:
        """Decentralize an optimizer, inside of Accelerate's wrapper, which accumulates gradients."""
        del device_placement  # its state is made where the parameters are
        if not getattr(optimizer, "_is_accelerate_prepared", False):
            model = self._model_of(optimizer)
            optimizer = gossamer.decentralize(optimizer, model, **self._options)
        return super().prepare_optimizer(optimizer, device_placement=False)  # type: ignore[no-any-return]

    @contextmanager
    def consensus(self) -> Iterator[None]:
        """Temporarily replace this worker's model by the exact average of all workers' models."""
        with consensus(self.decentralized):
            yield

    def get_state_dict(self, model: Module, unwrap: bool = True) -> dict[str, Any]:
        """Return the average model's state dict."""
        with self.consensus():
            return copied(super().get_state_dict(model, unwrap))

    def save_state(self, output_dir: str | None = None, *args: Any, **kwargs: Any) -> Path:
        """Save the average model once, and the optimizers in one file per worker."""
        with self.consensus(), self._optimizers_aside():
            folder: Path = super().save_state(output_dir, *args, **kwargs)
        states = [optimizer.state_dict() for optimizer in self._optimizers]
        torch.save(states, worker_file(folder, self.process_index))
        return folder

    def load_state(self, input_dir: str | None = None, *args: Any, **kwargs: Any) -> None:
        """Load a checkpoint; every worker's own model comes with its optimizers."""
        with self._optimizers_aside():
            super().load_state(input_dir, *args, **kwargs)
        own = worker_file(self._folder, self.process_index)
        if not own.exists():
            raise ValueError(f"{own} is missing: every worker resumes from the file that it saved itself")
        states = torch.load(own, map_location="cpu", weights_only=True)
        for optimizer, state in zip(self._optimizers, states, strict=True):
            optimizer.load_state_dict(state)

    @contextmanager
    def _optimizers_aside(self) -> Iterator[None]:
        """Keep Accelerate from saving only worker 0's optimizers, and from loading those on all workers."""
        kept, self._optimizers = self._optimizers, []
        try:
            yield
        finally:
            self._optimizers = kept

    def _before_load(self, models: list[Any], folder: str) -> None:
        """Note where the checkpoint is, and put models in the list that safetensors can load."""
        self._folder = folder
        models[:] = [_Apart(model) for model in models]

    def _model_of(self, optimizer: Optimizer) -> Module:
        trained = {p for group in optimizer.param_groups for p in group["params"]}
        for model in self._models:
            if trained.issubset(model.parameters()):
                return model  # type: ignore[no-any-return]
        raise ValueError(
            "an optimizer is decentralized with its model: accelerator.prepare(model, optimizer, ...)"
        )


class _Apart:
    """A model as safetensors wants to see it: no two tensors are parts of one buffer."""

    def __init__(self, model: Module) -> None:
        self._model, self.load_state_dict = model, model.load_state_dict

    def state_dict(self) -> dict[str, Any]:
        return copied(self._model.state_dict())


def make_ready(accelerator: Accelerator) -> None:
    """Refuse what shards the model, and let all workers skip a step together with fp16."""
    if accelerator.distributed_type in SHARDED:
        raise ValueError(
            f"{accelerator.distributed_type.value} shards the model, but each of Gossamer's workers trains a "
            f"whole one; leave it out of the configuration"
        )
    if accelerator.scaler is not None:
        accelerator.scaler = agreeing(accelerator.scaler, accelerator.device.type)
