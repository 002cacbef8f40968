"""The built-in tasks, people's own, and the standard formats their data comes in."""

from __future__ import annotations

import gzip
import math
import struct

import pytest
import torch
from torch.utils.data import Dataset

from gossamer.tasks import TASKS, Task, files, load_task, models


def learn(task, steps, lr=0.1, batch=32):
    torch.manual_seed(0)
    model = task.model()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    rng = torch.Generator().manual_seed(1)
    for _ in range(steps):
        optimizer.zero_grad()
        task.loss(model, task.batch(torch.randint(len(task.train), (batch,), generator=rng))).backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("model", ["", "mlp", "cnn"])
def test_digits_can_be_learned(model):
    """How well differs from seed to seed, and so from processor to processor: a loss of 0.1 to 0.4."""
    task = load_task("digits", model)
    before = task.evaluate(task.model())
    assert before["test loss"] == pytest.approx(math.log(10), abs=0.2)  # nothing known yet
    after = task.evaluate(learn(task, 200, lr=0.05))
    assert after["test loss"] < 0.5 * math.log(10)
    assert after["accuracy"] > 0.7


def test_text_needs_no_data_and_can_be_learned():
    task = load_task("text", "gpt-tiny")
    assert task.better == "lower"
    first = float(task.loss(task.model(), task.batch(torch.arange(4))).detach())
    assert first == pytest.approx(5.55, abs=0.2)  # log 256: nothing known yet
    model = learn(task, 60, lr=0.1, batch=4)
    assert float(task.loss(model, task.batch(torch.arange(4))).detach()) < 4.5  # 3.5 to 3.8 from seed to seed


def idx(values: torch.Tensor) -> bytes:
    header = b"\0\0\x08" + bytes([values.dim()]) + struct.pack(f">{values.dim()}I", *values.shape)
    return header + values.to(torch.uint8).numpy().tobytes()


def test_fashion_reads_idx_files(tmp_path):
    images, labels = torch.arange(5 * 28 * 28).view(5, 28, 28) % 256, torch.tensor([0, 1, 2, 3, 9])
    for split in ("train", "t10k"):
        (tmp_path / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images)))
        (tmp_path / f"{split}-labels-idx1-ubyte").write_bytes(idx(labels))
    task = load_task("fashion", data=tmp_path)
    assert task.labels is not None
    assert torch.equal(task.labels, labels)
    x, _ = task.batch(torch.tensor([0, 3]))
    assert x.shape == (2, 1, 28, 28)
    assert torch.equal(x[0].argmax(), (images[0]).argmax())
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(labels)[:-1])
    with pytest.raises(ValueError, match="damaged"):
        load_task("fashion", data=tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="no IDX file"):
        load_task("fashion", data=tmp_path)


def test_cifar10_reads_the_binary_version(tmp_path):
    rows = torch.arange(4 * 3073).view(4, 3073) % 251
    rows[:, 0] = torch.tensor([3, 1, 4, 1])
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        (tmp_path / name).write_bytes(rows.to(torch.uint8).numpy().tobytes())
    images, labels = files.read_cifar10(tmp_path, ["test_batch.bin"])
    assert labels.tolist() == [3, 1, 4, 1]
    assert images[2, 1, 0, 5] == rows[2, 1 + 1024 + 5]
    task = load_task("cifar10", "resnet8-gn", tmp_path)
    assert len(task.train) == 20
    assert task.model()(task.batch(torch.arange(2))[0]).shape == (2, 10)
    (tmp_path / "test_batch.bin").write_bytes(b"abc")
    with pytest.raises(ValueError, match="3073-byte"):
        load_task("cifar10", data=tmp_path)


def test_wikitext_reads_words(tmp_path):
    for split, text in (("train", "a b a c <unk>\n" * 40), ("valid", "a z\n" * 40), ("test", "b\n" * 40)):
        (tmp_path / f"{split}.txt").write_text(text)
    parts, words = files.read_words(tmp_path)
    assert words[0] == "a"
    assert parts["valid"][1] == words.index("<unk>")
    task = load_task("wikitext", "lstm-small", tmp_path)
    metrics = task.evaluate(task.model())
    assert metrics["perplexity"] == pytest.approx(len(words), rel=0.3)


class Uniform(torch.nn.Module):
    """Holds every byte to be equally likely, and keeps what it was asked."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, tokens):
        self.seen.append(tokens)
        return torch.zeros(*tokens.shape, 256)


def test_a_long_text_is_judged_on_a_part_from_everywhere(tmp_path):
    held_out = 2000 * 128 + 1
    (tmp_path / "long.txt").write_bytes(b"x" * 9 * held_out + b"a" * (held_out // 2) + b"b" * held_out)
    model = Uniform()
    metrics = load_task("text", data=tmp_path / "long.txt").evaluate(model)
    assert metrics["perplexity"] == pytest.approx(256)
    windows = torch.cat(model.seen)
    assert len(windows) == 1000
    assert {chr(c) for c in windows.unique()} == {"a", "b"}


def test_a_short_text_is_judged_on_all_of_its_held_out_part(tmp_path):
    (tmp_path / "short.txt").write_bytes(bytes(range(256)) * 4501)
    model = Uniform()
    load_task("text", data=tmp_path / "short.txt").evaluate(model)
    tokens = files.read_bytes(tmp_path / "short.txt")
    assert torch.equal(torch.cat(model.seen), files.windows(tokens[len(tokens) * 9 // 10 :], 128)[0])
    assert 500 < len(torch.cat(model.seen)) < 1000


def test_networks_have_the_papers_sizes():
    def size(model):
        return sum(p.numel() for p in model.parameters())

    assert size(models.resnet(20)) == 272_474
    assert size(models.mlp(784, 128, 64, 10)) == 109_386
    assert 90_000 < size(models.cnn(28, (16, 32), 64)) < 120_000
    with pytest.raises(ValueError, match="6 k"):
        models.resnet(21)


def test_a_task_of_ones_own(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n"
        "from gossamer.tasks import classification\n"
        "x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))\n"
        "def task():\n"
        "    data = x, (x[:, 0] > 0).long()\n"
        "    return classification('mine', lambda: torch.nn.Linear(4, 2), data, data)\n"
    )
    task = load_task(str(file))
    assert isinstance(task, Task)
    learned = task.evaluate(learn(task, 50))  # two classes with a plane between them
    assert learned["test loss"] < 0.5 * math.log(2)
    assert learned["accuracy"] > 0.8
    file.write_text("def task():\n    return 3\n")
    with pytest.raises(ValueError, match="returns a int"):
        load_task(str(file))
    file.write_text("tusk = 3\n")
    with pytest.raises(ValueError, match=r"no function task\(\)"):
        load_task(str(file))


class Squares(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return torch.tensor([float(i)]), i * i


def test_any_map_style_dataset_makes_batches():
    task = Task("squares", lambda: torch.nn.Linear(1, 1), Squares(), lambda m, b: b[0].sum(), lambda m: {})
    x, y = task.batch(torch.tensor([2, 5]))
    assert x.tolist() == [[2.0], [5.0]]
    assert y.tolist() == [4, 25]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("digit",), "did you mean 'digits'"),
        (("digits", "cmn"), "did you mean 'cnn'"),
        (("nowhere.py",), "no file nowhere.py"),
        (("fashion", "", "/nowhere"), "dataset-fashion-mnist"),
        (("cifar10",), "--data"),
        (("wikitext", "", "/nowhere"), "train.txt"),
        (("text", "", "/nowhere"), "name a text with --data"),
    ],
)
def test_mistakes_are_explained(arguments, complaint):
    with pytest.raises((ValueError, FileNotFoundError), match=complaint):
        load_task(*arguments)


def test_the_list_of_tasks():
    assert list(TASKS) == ["digits", "fashion", "cifar10", "wikitext", "text"]
