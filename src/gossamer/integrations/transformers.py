"""Hugging Face's Trainer: workers gossip in place of DDP; all else is the Trainer's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.optim import Optimizer

import gossamer
from gossamer.integrations.shared import copied, needed, require_overrides, worker_file

with needed("transformers"):
    from transformers import Trainer

    from gossamer.integrations.accelerate import make_ready

if TYPE_CHECKING:
    from transformers import Trainer as _Base
else:
    _Base = object


class GossamerMixin(_Base):
    """For Trainer and its subclasses: `class MyTrainer(GossamerMixin, Seq2SeqTrainer)`.

    `decentralize` holds the arguments of `gossamer.decentralize`. Evaluation and what is saved are about
    the average of all workers' models, and `train` leaves the average in the model. All workers call
    `evaluate`, `predict` and `save_model`.
    """

    optimizer: Any  # the Trainer's
    model_wrapped: Any

    def __init__(self, *args: Any, decentralize: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        self._options = dict(decentralize or {})
        self._running: dict[str, Any] | None = None  # this worker's own, once the final model is in its place
        super().__init__(*args, **kwargs)
        make_ready(self.accelerator)
        self.args.average_tokens_across_devices = False  # it would wait for all workers at every step

    @property
    def decentralized(self) -> gossamer.DecentralizedOptimizer:
        """The optimizer without Accelerate's wrapper."""
        if not self._has_begun:
            raise ValueError("the Trainer makes its optimizer in train()")
        return getattr(self.optimizer, "optimizer", self.optimizer)  # type: ignore[no-any-return]

    @contextmanager
    def consensus(self) -> Iterator[None]:
        """Temporarily replace this worker's model by the exact average of all workers' models."""
        if self._has_begun and self._running is None:
            with self.decentralized.consensus():
                yield
        else:
            yield

    def create_optimizer(self, *args: Any, **kwargs: Any) -> Optimizer:
        """Decentralize the Trainer's optimizer, before the Trainer would put DDP around the model."""
        optimizer = super().create_optimizer(*args, **kwargs)
        if self.model_wrapped is self.model:
            self.model_wrapped = self.accelerator.prepare_model(self.model, evaluation_mode=True)
        if not self._has_begun:
            self.optimizer = gossamer.decentralize(optimizer, self.model, **self._options)
        return self.optimizer  # type: ignore[no-any-return]

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train, and leave the average of all workers' models in the model, or the best that was saved."""
        if self._running is not None:
            self.decentralized.load_state_dict(self._running)
        self._running = None
        output = super().train(*args, **kwargs)
        has_best = self.decentralized.mean(self._running is not None)
        if 0 < has_best < 1:
            raise ValueError(
                "not all workers have found the best model in their output_dir: let them share a folder, or "
                "set save_on_each_node=True. The best is in worker 0's folder, as an average of all"
            )
        if self._running is None:
            self._put_aside()
            with self.decentralized.consensus():
                average = copied(self.model.state_dict())
            self.model.load_state_dict(average)
        return output

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate the average model. What decides which model is best is the same number everywhere."""
        with self.consensus():
            output = super().evaluation_loop(*args, **kwargs)
        best = self.args.metric_for_best_model
        if best is not None and self._has_begun:
            name = best if best in output.metrics else f"eval_{best}"
            if name in output.metrics:
                output.metrics[name] = self.decentralized.mean(output.metrics[name])
        return output

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        """Save the average model."""
        with self.consensus():
            super().save_model(*args, **kwargs)

    def _load_best_model(self) -> None:
        if any(Path(self.state.best_model_checkpoint).glob("*model*")):
            self._put_aside()
        super()._load_best_model()

    def _put_aside(self) -> None:
        """Keep what was trained, for a checkpoint or another call of train()."""
        self._running = self.decentralized.state_dict()

    @property
    def _has_begun(self) -> bool:
        inside = getattr(self.optimizer, "optimizer", self.optimizer)
        return isinstance(inside, gossamer.DecentralizedOptimizer)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Save the optimizer and its model in one file per worker."""
        Path(output_dir).mkdir(parents=True, exist_ok=True)
        state = {"optimizer": self.optimizer.state_dict(), "scheduler": self.lr_scheduler.state_dict()}
        torch.save(state, worker_file(output_dir, self.args.process_index))

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        own = worker_file(checkpoint, self.args.process_index)
        if not own.exists():
            raise ValueError(f"{own} is missing: every worker resumes from the file that it saved itself")
        state = torch.load(own, map_location="cpu", weights_only=True)
        self.optimizer.load_state_dict(state["optimizer"])
        self.lr_scheduler.load_state_dict(state["scheduler"])


class GossamerTrainer(GossamerMixin, Trainer):
    """Hugging Face's Trainer with workers that gossip: `GossamerTrainer(model, args, decentralize={...})`."""


require_overrides(GossamerMixin, Trainer, "decentralized", "consensus", "_put_aside", "_has_begun")
