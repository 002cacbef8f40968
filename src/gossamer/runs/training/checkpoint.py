"""Checkpoints on disk: one safetensors file and one JSON file per worker and step.

    checkpoints/step-00000120/worker-3.safetensors   every tensor, under its path in the state
    checkpoints/step-00000120/worker-3.json          everything else, and the checksum of both

Each file is written under another name, flushed to the disk and renamed; the JSON comes last.
So a checkpoint exists, complete, as soon as its JSON does, and a half-written one is never loaded.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from gossamer.errors import GossamerError
from gossamer.runs.files import write_atomically

STEP = "step-"


class DamagedCheckpoint(GossamerError):  # noqa: N818 - the words say it
    """A checkpoint whose bytes are not those that were written."""


class Checkpoints:
    """The checkpoints of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def steps(self, rank: int) -> list[int]:
        """Return the steps of which this worker has a complete checkpoint, newest first."""
        folders = self._folders().items()
        return sorted((step for step, at in folders if (at / f"worker-{rank}.json").is_file()), reverse=True)

    def ranks(self) -> list[int]:
        """Return the workers that have a complete checkpoint."""
        files = (path for at in self._folders().values() for path in at.glob("worker-*.json"))
        return sorted({int(path.stem.removeprefix("worker-")) for path in files})

    def save(self, step: int, rank: int, state: Any) -> None:  # noqa: ANN401 - a tree of tensors and numbers
        """Write a worker's state, completely or not at all."""
        tensors: dict[str, Tensor] = {}
        skeleton = _take_tensors(state, "", tensors)
        path = self._path(step, rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path.with_suffix(".safetensors"), lambda part: part.write_bytes(save(tensors)))
        content = {"step": step, "rank": rank, "state": skeleton}
        content["tensors sha256"] = _hash_file(path.with_suffix(".safetensors"))
        content["sha256"] = _hash_json(content)
        write_atomically(path, lambda part: part.write_text(json.dumps(content)))

    def load(self, step: int, rank: int) -> Any:  # noqa: ANN401
        """Return what was saved, or raise DamagedCheckpoint."""
        path = self._path(step, rank)
        try:
            content = json.loads(path.read_text())
            sound = content.pop("sha256") == _hash_json(content) and content["tensors sha256"] == _hash_file(
                path.with_suffix(".safetensors")
            )
            if sound:
                return _put_tensors(content["state"], load_file(path.with_suffix(".safetensors")))
        except (ValueError, KeyError, TypeError, AttributeError, OSError, SafetensorError) as error:
            raise DamagedCheckpoint(f"worker {rank}'s checkpoint of step {step}: {error}") from error
        raise DamagedCheckpoint(f"worker {rank}'s checkpoint of step {step} does not match its checksum")

    def prune(self, rank: int, keep: int) -> None:
        """Remove all but the newest ones of this worker, and what was left half-written."""
        kept = set(self.steps(rank)[:keep])
        for step, folder in self._folders().items():
            if step not in kept:
                self._remove(folder, rank)

    def forget_after(self, step: int, rank: int) -> None:
        """Remove this worker's checkpoints of later steps, complete or not: the run resumes from here."""
        for later, folder in self._folders().items():
            if later > step:
                self._remove(folder, rank)

    def _folders(self) -> dict[int, Path]:
        """Return the folders of all steps, and of nothing else that may lie beside them."""
        names = {path: re.fullmatch(rf"{STEP}(\d{{8,}})", path.name) for path in self.folder.glob(f"{STEP}*")}
        return {int(match[1]): path for path, match in names.items() if match}

    def _path(self, step: int, rank: int) -> Path:
        return self.folder / f"{STEP}{step:08}" / f"worker-{rank}.json"

    def _remove(self, folder: Path, rank: int) -> None:
        (folder / f"worker-{rank}.json").unlink(missing_ok=True)  # first: without it the rest does not count
        for path in folder.glob(f"worker-{rank}.*"):
            path.unlink(missing_ok=True)
        try:
            folder.rmdir()
        except OSError:
            return  # others' checkpoints are still in it


def _take_tensors(state: Any, path: str, tensors: dict[str, Tensor]) -> Any:  # noqa: ANN401
    """Return a state as JSON with references to its tensors, which go into `tensors`."""
    if isinstance(state, Tensor):
        tensors[path] = state.detach().clone(memory_format=torch.contiguous_format)
        return {"tensor": path}
    if isinstance(state, dict):
        return {"dict": [[key, _take_tensors(v, f"{path}/{key}", tensors)] for key, v in state.items()]}
    if isinstance(state, (list, tuple)):
        kind = "tuple" if isinstance(state, tuple) else "list"
        return {kind: [_take_tensors(v, f"{path}/{i}", tensors) for i, v in enumerate(state)]}
    if state is None or isinstance(state, (bool, int, float, str)):
        return state
    raise TypeError(f"a checkpoint cannot hold the {type(state).__name__} at {path}")


def _put_tensors(skeleton: Any, tensors: dict[str, Tensor]) -> Any:  # noqa: ANN401
    """Return the state that `_take_tensors` took apart."""
    if not isinstance(skeleton, dict):
        return skeleton
    ((kind, content),) = skeleton.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {key: _put_tensors(v, tensors) for key, v in content}
    values = [_put_tensors(v, tensors) for v in content]
    return tuple(values) if kind == "tuple" else values


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hash_json(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
