"""What a task is: a model, examples to train on, a loss, and a way to judge a model."""

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

    Args:
        name: What reports call it.
        model: Makes the model.
        train: The training examples, a map-style dataset (a TensorDataset is fastest).
        loss: `loss(model, batch)` returns the mean loss of a batch.
        evaluate: `evaluate(model)` returns metrics by name.
        metric: The one of these that tables and curves show.
        better: Whether a "higher" or a "lower" metric is better.
        labels: A class for every training example, for partitions that go by class.

    Raises:
        ValueError: Training examples without a length, labels that do not fit them, or an unknown `better`.

    Example:
        >>> import torch
        >>> from torch.nn.functional import mse_loss
        >>> from gossamer.tasks import Task
        >>> x = torch.linspace(-1, 1, 64).view(-1, 1)
        >>> line = Task(
        ...     "line",
        ...     model=lambda: torch.nn.Linear(1, 1),
        ...     train=torch.utils.data.TensorDataset(x, 2 * x),
        ...     loss=lambda model, batch: mse_loss(model(batch[0]), batch[1]),
        ...     evaluate=lambda model: {"error": float(mse_loss(model(x), 2 * x))},
        ...     metric="error",
        ...     better="lower",
        ... )
        >>> [t.shape for t in line.batch(torch.tensor([0, 5, 7]))]
        [torch.Size([3, 1]), torch.Size([3, 1])]
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
        """Return the training examples at these positions as one batch.

        Args:
            which: Positions in `train`.

        Returns:
            A tuple of tensors if `train` is a TensorDataset; else what its items collate to.
        """
        if isinstance(self.train, TensorDataset):
            return tuple(t[which] for t in self.train.tensors)
        return default_collate([self.train[int(i)] for i in which])


def classification(
    name: str, model: Callable[[], Module], train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]
) -> Task:
    """Return the task of telling classes apart: cross-entropy, judged by accuracy on the test examples.

    Args:
        name: What reports call it.
        model: Makes the model, which returns one number per class.
        train: Training examples and their classes.
        test: Test examples and their classes.

    Returns:
        A task whose labels are the classes of the training examples.

    Example:
        >>> import torch
        >>> from gossamer.tasks import classification
        >>> x, y = torch.randn(100, 8), torch.arange(100) % 3
        >>> task = classification("mine", lambda: torch.nn.Linear(8, 3), (x[:80], y[:80]), (x[80:], y[80:]))
        >>> sorted(task.evaluate(task.model()))
        ['accuracy', 'test loss']
    """

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
