"""What the strategies for both of Lightning's packages have in common."""

from __future__ import annotations

import math
import os
import random
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.optim import Optimizer

import gossamer
from gossamer.integrations.shared import agreeing, consensus, copied

if TYPE_CHECKING:
    from lightning.pytorch.strategies import DDPStrategy as _Base
else:
    _Base = object

LIGHTNINGS = ("process_group_backend", "timeout", "start_method", "cluster_environment")

OWN = ("decentralized", "_own", "_require_agreement")  # what the mixin adds to Lightning's


class StrategyMixin(_Base):
    """Lightning's DDP strategy without DDP: launching, samplers and metrics are Lightning's.

    The arguments are those of `gossamer.decentralize`, and DDPStrategy's `process_group_backend`,
    `timeout`, `start_method` and `cluster_environment`. Validation and checkpoints are about the average
    of all workers' models, and `fit` leaves the average in the module.
    """

    optimizers: list[Any]  # Lightning's

    def __init__(self, **options: Any) -> None:
        super().__init__(**{name: options.pop(name) for name in LIGHTNINGS if name in options})
        self._options = options
        self._validation, self._interrupted = ExitStack(), False
        self._running: dict[Optimizer, dict[str, Any]] = {}  # workers' own, once the module has the average

    @property
    def decentralized(self) -> list[gossamer.DecentralizedOptimizer]:
        """The optimizers while workers have different models; none after training."""
        return [] if self._running else list(self.optimizers)

    def configure_ddp(self) -> None:
        """Leave the module as it is."""

    def setup_optimizers(self, trainer: Any) -> None:
        """Decentralize the module's optimizers."""
        super().setup_optimizers(trainer)
        module = self.lightning_module
        self.optimizers = [gossamer.decentralize(o, module, **self._options) for o in self.optimizers]
        self._running, self._interrupted = {}, False

    def setup_precision_plugin(self) -> None:
        """Let all workers skip a step together with fp16."""
        scaler = getattr(self.precision_plugin, "scaler", None)
        if scaler is not None:
            self.precision_plugin.scaler = agreeing(scaler, self.root_device.type)
        super().setup_precision_plugin()

    def on_validation_start(self) -> None:
        """Show the average model until validation is over."""
        super().on_validation_start()
        self._validation.enter_context(consensus(self.decentralized))

    def on_validation_end(self) -> None:
        """Go back to this worker's model."""
        self._validation.close()
        super().on_validation_end()

    def on_exception(self, exception: BaseException) -> None:
        """Remember that other workers may be gone."""
        self._interrupted = True
        super().on_exception(exception)

    def teardown(self) -> None:
        """Leave the average in the module; a checkpoint that is saved later still holds the workers' own."""
        if self.decentralized and not self._interrupted:
            average = self.lightning_module_state_dict()
            self._running = {o: o.state_dict() for o in self.decentralized}
            self.lightning_module.load_state_dict(average)
        super().teardown()

    def lightning_module_state_dict(self) -> dict[str, Any]:
        """Return the average model's state dict."""
        with consensus(self.decentralized):
            return copied(super().lightning_module_state_dict())

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return this worker's state of an optimizer, with its own model."""
        return self._running.get(optimizer) or super().optimizer_state(optimizer)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        """Save a checkpoint of every worker."""
        self._require_agreement(checkpoint, filepath)
        checkpoint["gossamer_rng"] = _rng_state()
        self.checkpoint_io.save_checkpoint(checkpoint, self._own(filepath), storage_options=storage_options)

    def load_checkpoint(self, checkpoint_path: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Load this worker's own checkpoint, or the common one if it has none."""
        if os.path.islink(checkpoint_path):  # ModelCheckpoint(save_last="link")
            checkpoint_path = os.path.realpath(checkpoint_path)
        own = self._own(checkpoint_path)
        path = own if os.path.exists(own) else checkpoint_path
        checkpoint: dict[str, Any] = super().load_checkpoint(path, *args, **kwargs)
        return checkpoint

    def load_optimizer_state_dict(self, checkpoint: Any) -> None:
        """Resume where this worker was, random numbers included."""
        super().load_optimizer_state_dict(checkpoint)
        if "gossamer_rng" in checkpoint:
            _set_rng_state(checkpoint["gossamer_rng"])

    def remove_checkpoint(self, filepath: Any) -> None:
        """Remove every worker's checkpoint."""
        self.checkpoint_io.remove_checkpoint(self._own(filepath))

    def _own(self, path: Any) -> str:
        """Return where this worker keeps its part: worker 0 where Lightning does, the others beside it."""
        if self.global_rank == 0:
            return str(path)
        folder, name = os.path.split(path)
        return os.path.join(folder, "workers", str(self.global_rank), name)

    def _require_agreement(self, checkpoint: dict[str, Any], path: Any) -> None:
        """Raise a ValueError on all workers if callbacks would keep different checkpoints as the best."""
        states = checkpoint.get("callbacks", {}).values()
        scores = [float(s["current_score"]) for s in states if s.get("current_score") is not None]
        name = os.path.basename(path)
        first_name, first_scores = self.broadcast((name, scores))
        alike = name == first_name and len(scores) == len(first_scores)
        pairs = zip(scores, first_scores, strict=False)
        if not self.reduce_boolean_decision(
            alike and all(math.isclose(*pair, rel_tol=1e-6) for pair in pairs)
        ):
            raise ValueError(
                "workers disagree about the monitored metric, so each would keep another checkpoint as the "
                "best: log it with self.log(..., sync_dist=True)"
            )


def _rng_state() -> dict[str, Any]:
    kind, keys, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (kind, [int(k) for k in keys], *rest),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def _set_rng_state(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
