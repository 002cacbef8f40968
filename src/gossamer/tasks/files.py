"""Data sets in their standard formats, read from a folder. Nothing is ever unpickled."""

from __future__ import annotations

import gzip
import struct
import sysconfig
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

UNKNOWN = "<unk>"


def find(folder: Path, *names: str) -> Path:
    """Return the first of these files that is in the folder; a FileNotFoundError says what was looked for."""
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(f"{folder} holds none of {', '.join(names)}")


def read_idx(path: Path) -> Tensor:
    """Read an IDX file of bytes (MNIST, Fashion-MNIST), gzipped or not."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    if len(data) < 4 or data[:3] != b"\0\0\x08":
        raise ValueError(f"{path} is no IDX file of bytes")
    shape = struct.unpack(f">{data[3]}I", data[4 : 4 + 4 * data[3]])
    values = np.frombuffer(data, np.uint8, offset=4 + 4 * data[3])
    if values.size != np.prod(shape):
        raise ValueError(f"{path} is damaged: {values.size} bytes for an array of shape {shape}")
    return torch.from_numpy(values.reshape(shape).copy())


def read_mnist(folder: Path, split: str) -> tuple[Tensor, Tensor]:
    """Read the images and labels called `train` or `t10k` of an MNIST-like data set."""
    stems = [f"{split}-images-idx3-ubyte", f"{split}-labels-idx1-ubyte"]
    images, labels = (
        read_idx(find(folder, f"{stem}.gz", stem, stem.replace("-idx", ".idx"))) for stem in stems
    )
    return images.unsqueeze(1), labels.long()


def read_cifar10(folder: Path, names: list[str]) -> tuple[Tensor, Tensor]:
    """Read files of the binary version of CIFAR-10: a label byte and 3 x 32 x 32 pixel bytes per image."""
    files = [find(folder, name, f"cifar-10-batches-bin/{name}").read_bytes() for name in names]
    for name, data in zip(names, files, strict=True):
        if not data or len(data) % 3073:
            raise ValueError(
                f"{folder / name} is damaged: {len(data)} bytes are no whole number of 3073-byte images"
            )
    rows = torch.from_numpy(np.frombuffer(b"".join(files), np.uint8).copy()).view(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0].long()


def standardized(images: Tensor, like: Tensor) -> Tensor:
    """Return bytes as floats of mean 0 and variance 1 per channel, measured on the images `like`."""
    sample = like[:10_000].float() / 255
    mean, std = sample.mean((0, 2, 3), keepdim=True), sample.std((0, 2, 3), keepdim=True)
    return (images.float() / 255 - mean) / std


def read_words(folder: Path) -> tuple[dict[str, Tensor], list[str]]:
    """Read WikiText's train, valid and test as word numbers, with the vocabulary of the training part."""
    texts = {}
    for split in ("train", "valid", "test"):
        path = find(folder, f"{split}.txt", f"wiki.{split}.tokens", f"wikitext-2/{split}.txt")
        texts[split] = path.read_text(encoding="utf-8").replace("\n", " <eos> ").split()
    counted = Counter(texts["train"])
    words = sorted(counted, key=lambda word: (-counted[word], word))  # one order on every machine
    words += [] if UNKNOWN in counted else [UNKNOWN]
    number = {word: i for i, word in enumerate(words)}
    unknown = number[UNKNOWN]
    return {s: torch.tensor([number.get(w, unknown) for w in text]) for s, text in texts.items()}, words


def read_bytes(path: Path | None) -> Tensor:
    """Read a text as bytes; without a path, the Python standard library's own sources, in order of name."""
    if path is not None:
        data = path.read_bytes()
    else:
        library = Path(sysconfig.get_paths()["stdlib"])
        data = b"\n".join(source.read_bytes() for source in sorted(library.glob("*.py")))
    return torch.from_numpy(np.frombuffer(data, np.uint8).copy()).long()


def windows(tokens: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Cut tokens into rows of `length`, and the same shifted by one as the targets."""
    rows = (len(tokens) - 1) // length
    if rows < 1:
        raise ValueError(f"{len(tokens)} tokens are too few for one window of {length}")
    return tokens[: rows * length].view(rows, length), tokens[1 : rows * length + 1].view(rows, length)
