"""What a task is: a model, examples to train on, a loss, and a way to tell how good a model is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset, default_collate

Batch = Any  # what the loss takes: for tensors a tuple of them, for a dataset what its items collate to
EVALUATION_BATCH = 500


@dataclass(frozen=True)
class Task:
    """Everything that `gossamer train` needs to know of a problem.

    `train` is a map-style dataset (a TensorDataset is fastest). `loss(model, batch)` returns the
    mean loss of a batch. `evaluate(model)` returns metrics by name; the one called `metric` is
    the one that tables and curves show. `labels` holds a class for every training example and
    lets partitions go by class.
    """

    name: str
    model: Callable[[], Module]
    train: Any
    loss: Callable[[Module, Batch], Tensor]
    evaluate: Callable[[Module], dict[str, float]]
    metric: str = "accuracy"
    better: Literal["higher", "lower"] = "higher"
    labels: Tensor | None = None

    def __post_init__(self) -> None:
        if isinstance(self.train, tuple | list) or not (
            hasattr(self.train, "__len__") and hasattr(self.train, "__getitem__")
        ):
            raise ValueError(
                f"the {self.name} task's training examples are a {type(self.train).__name__}; they must be a "
                f"dataset with a length, such as TensorDataset(x, y)"
            )
        sound = isinstance(self.labels, Tensor) and not self.labels.is_floating_point()
        if self.labels is not None and not (sound and self.labels.shape == (len(self.train),)):
            raise ValueError(
                f"the {self.name} task's labels must be a tensor of integers, one for each of its "
                f"{len(self.train)} training examples"
            )
        if self.better not in ("higher", "lower"):
            raise ValueError(f"better={self.better!r}: is a higher or a lower {self.metric} better?")

    def batch(self, which: Tensor) -> Batch:
        """Return the training examples at these positions as one batch."""
        if isinstance(self.train, TensorDataset):
            return tuple(t[which] for t in self.train.tensors)
        return default_collate([self.train[int(i)] for i in which])


def classification(
    name: str, model: Callable[[], Module], train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]
) -> Task:
    """Return the task of telling classes apart: cross-entropy, judged by accuracy on the test examples."""

    def loss(model: Module, batch: Batch) -> Tensor:
        x, y = batch
        return cross_entropy(model(x), y)

    def evaluate(model: Module) -> dict[str, float]:
        return mean_over_batches(model, test, _right_and_loss)

    return Task(name, model, TensorDataset(*train), loss, evaluate, labels=train[1])


def mean_over_batches(
    model: Module,
    examples: tuple[Tensor, Tensor],
    measure: Callable[[Tensor, Tensor], dict[str, Tensor]],
    batch_size: int = EVALUATION_BATCH,
) -> dict[str, float]:
    """Return the means over all examples of what `measure(outputs, targets)` sums up, in eval mode."""
    x, y = examples
    was_training = model.training
    model.eval()
    sums: dict[str, float] = {}
    with torch.no_grad():
        for a, b in zip(x.split(batch_size), y.split(batch_size), strict=True):
            for key, value in measure(model(a), b).items():
                sums[key] = sums.get(key, 0.0) + float(value)
    model.train(was_training)
    return {key: value / y.numel() for key, value in sums.items()}


def _right_and_loss(outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
    right = (outputs.argmax(1) == targets).sum()
    return {"accuracy": right, "test loss": cross_entropy(outputs, targets, reduction="sum")}
