"""One worker's share of a run: its model, its batches, its gradients. It knows nothing of the others."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.utils import clip_grad_norm_

from gossamer._node.buckets import by_kind, joined, spread
from gossamer._node.buffers import Buffers, saved_buffers
from gossamer._random import seed_of
from gossamer.errors import Diverged
from gossamer.runs.config import Config
from gossamer.tasks import Sampler, Task

HOPELESS = 1000.0  # times the first loss: training has diverged


class Learner:
    """A worker's model and data.

    Whatever is random in a step (dropout, a user's augmentation) is drawn from generators seeded
    by (seed, step, worker) just before it: a run that is resumed, or simulated, draws the same.
    Its share of the data is that of worker number `share`, by default its rank.
    """

    def __init__(
        self, config: Config, task: Task, sampler: Sampler, rank: int, share: int | None = None
    ) -> None:
        self.config, self.task, self.rank = config, task, rank
        seed_everything(seed_of(config.seed, "model"))
        self.model: Module = task.model()
        self.parameters: dict[str, Parameter] = {
            name: p for name, p in self.model.named_parameters() if p.requires_grad
        }
        if not self.parameters:
            raise ValueError(f"the model of the {task.name} task has no parameter to train")
        self.optimizer = config.make_optimizer(list(self.parameters.values()))
        self.first_loss: float | None = None
        self._buffers = Buffers(self.model, config.buffers)
        self._steps_per_epoch = sampler.steps
        share = rank if share is None else share
        self._batches = lru_cache(maxsize=1)(lambda epoch: sampler.batches(epoch, share))

    def backward(self, step: int, lr: float) -> float:
        """Put the gradient of this step's batch into the parameters; return the loss."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        epoch, position = divmod(step, self._steps_per_epoch)
        seed_everything(seed_of(self.config.seed, "step", step, self.rank))
        batch = self.task.batch(self._batches(epoch)[position])
        self.model.train()
        loss = self.task.loss(self.model, batch)
        loss.backward()
        if self.config.clip is not None:
            clip_grad_norm_(self.parameters.values(), self.config.clip)
        value = float(loss.detach())
        self._require_hope(value, step)
        return value

    def evaluate(self) -> dict[str, float]:
        """Return the metrics of the model as it is, and leave it as it is."""
        was_training = self.model.training
        self.model.eval()
        with torch.no_grad():
            metrics = self.task.evaluate(self.model)
        self.model.train(was_training)
        return checked_metrics(metrics, self.task)

    def read(self) -> list[Tensor]:
        """Return copies of what the average model is made of: parameters, and buffers by policy."""
        return joined(by_kind(self.parameters)) + self._buffers.read()

    @contextmanager
    def with_values(self, vectors: list[Tensor]) -> Iterator[None]:
        """Temporarily load vectors in the format of `read()` into the model."""
        own = self.read()
        self._write(vectors)
        try:
            yield
        finally:
            self._write(own)

    @property
    def unsaved_buffers(self) -> dict[str, Tensor]:
        """The buffers that the model's state_dict leaves out, and that a step may have changed."""
        saved = saved_buffers(self.model)
        return {name: b for name, b in self.model.named_buffers() if name not in saved}

    @property
    def parameter_vectors(self) -> int:
        """How many of the vectors of `read` are parameters; buffers come after them."""
        return len(by_kind(self.parameters))

    def _write(self, vectors: list[Tensor]) -> None:
        spread(by_kind(self.parameters), vectors[: self.parameter_vectors])
        self._buffers.write(vectors[self.parameter_vectors :])

    def _require_hope(self, loss: float, step: int) -> None:
        if self.first_loss is None:
            self.first_loss = loss
        if not loss < HOPELESS * max(abs(self.first_loss), 1.0):
            raise Diverged(
                f"worker {self.rank}: the loss of step {step + 1} is {loss:.3g}; it began at "
                f"{self.first_loss:.3g}. Lower the learning rate or gamma, or compress less."
            )


def checked_metrics(metrics: Any, task: Task) -> dict[str, float]:  # noqa: ANN401 - a user's function made it
    """Return what a task's evaluation found, as plain numbers."""
    if not isinstance(metrics, dict) or task.metric not in metrics:
        found = sorted(metrics) if isinstance(metrics, dict) else type(metrics).__name__
        raise ValueError(
            f"evaluate() of the {task.name} task must return a dict with its metric, '{task.metric}', "
            f'not {found}; Task(..., metric="mse", better="lower") names another metric'
        )
    return {str(name): float(value) for name, value in metrics.items()}


def seed_everything(seed: int) -> None:
    """Seed the global generators that a user's model or data may draw from."""
    if _has_accelerator():
        torch.manual_seed(seed)
    else:  # the same for the CPU alone; torch.manual_seed records a stack trace for every absent device
        torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def _has_accelerator() -> bool:
    if hasattr(torch, "accelerator"):  # since torch 2.6
        return torch.accelerator.is_available()
    return torch.cuda.is_available() or torch.backends.mps.is_available() or torch.xpu.is_available()


@contextmanager
def own_randomness() -> Iterator[None]:
    """Leave the caller's global generators and number of threads as they were.

    One thread: more could add up floats in another order, and fight over cores.
    """
    threads, python, numpy = torch.get_num_threads(), random.getstate(), np.random.get_state()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_num_threads(threads)
