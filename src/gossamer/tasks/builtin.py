"""The built-in tasks."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from gossamer._suggest import unknown_name
from gossamer.tasks import files, models
from gossamer.tasks.base import Batch, Task, classification, mean_over_batches

FASHION = Path("/usr/share/datasets/fashion-mnist")  # where Debian's package puts it
CONTEXT = {"wikitext": 30, "text": 128}


def digits(model: str, data: Path | None) -> Task:
    """8x8 images of handwritten digits from scikit-learn: 1500 to train on, 297 to test."""
    try:
        from sklearn.datasets import load_digits  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise ValueError("the digits task needs scikit-learn: pip install 'gossamer[demo]'") from error
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(images, dtype=torch.float32)[order].view(-1, 1, 8, 8) / 16
    y = torch.tensor(labels)[order]
    networks = {"mlp": lambda: models.mlp(64, 128, 64, 10), "cnn": lambda: models.cnn(8, (16, 32), 64)}
    return classification(
        "digits", _choose("digits", model, networks), (x[297:], y[297:]), (x[:297], y[:297])
    )


def fashion(model: str, data: Path | None) -> Task:
    """28x28 images of clothes, 60 000 to train on, 10 000 to test."""
    folder = _folder(
        data or FASHION, "fashion", "install Debian's dataset-fashion-mnist, or put the four IDX files"
    )
    (x, y), (x_test, y_test) = files.read_mnist(folder, "train"), files.read_mnist(folder, "t10k")
    networks = {"mlp": lambda: models.mlp(784, 128, 64, 10), "cnn": lambda: models.cnn(28, (16, 32), 64)}
    test = files.standardized(x_test, x), y_test
    return classification("fashion", _choose("fashion", model, networks), (files.standardized(x, x), y), test)


def cifar10(model: str, data: Path | None) -> Task:
    """32x32 colour images of ten things, 50 000 to train on, 10 000 to test; no augmentation."""
    folder = _folder(data, "cifar10", "put the binary version (data_batch_1.bin ... test_batch.bin)")
    x, y = files.read_cifar10(folder, [f"data_batch_{i}.bin" for i in range(1, 6)])
    x_test, y_test = files.read_cifar10(folder, ["test_batch.bin"])
    networks: dict[str, Callable[[], Module]] = {
        "resnet8": lambda: models.resnet(8),
        "resnet20": lambda: models.resnet(20),
        "resnet8-gn": lambda: models.resnet(8, "gn"),
        "resnet20-gn": lambda: models.resnet(20, "gn"),
    }
    test = files.standardized(x_test, x), y_test
    return classification("cifar10", _choose("cifar10", model, networks), (files.standardized(x, x), y), test)


def wikitext(model: str, data: Path | None) -> Task:
    """Predict the next word of WikiText-2; judged by perplexity on the validation part."""
    folder = _folder(data, "wikitext", "put train.txt, valid.txt and test.txt")
    parts, words = files.read_words(folder)
    networks: dict[str, Callable[[], Module]] = {
        "lstm": lambda: models.LSTM(len(words)),
        "lstm-small": lambda: models.LSTM(len(words), 128, 2, 0.2),
    }
    return language("wikitext", _choose("wikitext", model, networks), parts["train"], parts["valid"])


def text(model: str, data: Path | None) -> Task:
    """Predict the next byte of a text; judged by perplexity on 1000 windows of its last tenth."""
    tokens = files.read_bytes(_file(data))
    networks: dict[str, Callable[[], Module]] = {
        "gpt": lambda: models.GPT(256, CONTEXT["text"]),
        "gpt-tiny": lambda: models.GPT(256, CONTEXT["text"], 64, 2),
    }
    split = len(tokens) * 9 // 10
    return language("text", _choose("text", model, networks), tokens[:split], tokens[split:], judged=1000)


def language(
    name: str, model: Callable[[], Module], train: Tensor, test: Tensor, judged: int | None = None
) -> Task:
    """Return the task of predicting the next token, judged by perplexity on `judged` windows, or on all."""
    length = CONTEXT[name]
    x, y = files.windows(test, length)
    count = min(judged or len(x), len(x))
    chosen = torch.arange(count) * len(x) // count  # spread over the whole text
    examined = x[chosen], y[chosen]

    def loss(model: Module, batch: Batch) -> Tensor:
        x, y = batch
        return cross_entropy(model(x).flatten(0, 1), y.flatten())

    def summed(outputs: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {"test loss": cross_entropy(outputs.flatten(0, 1), targets.flatten(), reduction="sum")}

    def evaluate(model: Module) -> dict[str, float]:
        mean = mean_over_batches(model, examined, summed, batch_size=20)
        return {"perplexity": math.exp(min(mean["test loss"], 50.0)), **mean}

    examples = TensorDataset(*files.windows(train, length))
    return Task(name, model, examples, loss, evaluate, metric="perplexity", better="lower")


TASKS: dict[str, Callable[[str, Path | None], Task]] = {
    "digits": digits,
    "fashion": fashion,
    "cifar10": cifar10,
    "wikitext": wikitext,
    "text": text,
}


def _choose(task: str, name: str, networks: dict[str, Callable[[], Module]]) -> Callable[[], Module]:
    """Return the network of this name; without one, the first."""
    if name and name not in networks:
        raise unknown_name(f"model of the {task} task", name, networks)
    return networks[name or next(iter(networks))]


def _folder(folder: Path | None, task: str, remedy: str) -> Path:
    if folder is None:
        raise FileNotFoundError(
            f"the {task} task needs its data: {remedy} into a folder and name it with --data"
        )
    if not folder.is_dir():
        raise FileNotFoundError(
            f"there is no folder {folder}: {remedy} into a folder and name it with --data"
        )
    return folder


def _file(path: Path | None) -> Path | None:
    if path is not None and not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; name a text with --data, or leave it out")
    return path
