"""The model that a run has trained: the average of all workers' models."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor

from gossamer.runs.files import write_atomically
from gossamer.runs.folder import RunFolder


def export(run: str | Path, path: str | Path) -> int:
    """Write the average of the workers' newest common checkpoint as a state_dict; return its step.

    Floating-point tensors are averaged in float64; what is not, such as BatchNorm's counters, is
    worker 0's, and so are buffers where the run says buffers="local".

    Args:
        run: The run's folder.
        path: The file to write; its name ends in .safetensors.

    Returns:
        The step of that checkpoint.

    Raises:
        ValueError: A file of another kind, or a folder that holds no run.
        FileNotFoundError: No step has a checkpoint of every worker.

    Example:
        >>> import tempfile
        >>> from gossamer.runs import Config, export, simulate
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = simulate(Config(workers=2, compressor="sign", steps=2), f"{folder}/mine")
        ...     export(f"{folder}/mine", f"{folder}/model.safetensors")
        2
    """
    folder, target = RunFolder(Path(run)), Path(path)
    config = folder.config()
    if target.suffix != ".safetensors":
        raise ValueError(f"{target}: the model is written as safetensors; name a file *.safetensors")
    if not target.absolute().parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent} to write {target.name} to")
    found = folder.checkpoints.ranks()
    # Where an entry of the peers file is revoked, the numbers of a mesh's workers have a gap.
    ranks = found if config.transport == "mesh" and len(found) >= config.workers else range(config.workers)
    common = set.intersection(*(set(folder.checkpoints.steps(rank)) for rank in ranks))
    if not common:
        raise FileNotFoundError(
            f"{folder.path} has no checkpoint of all {config.workers} workers; where they ran on several "
            f"machines, bring their checkpoint folders together first"
        )
    step = max(common)
    states = [folder.checkpoints.load(step, rank) for rank in ranks]
    trained = set(states[0]["trained"])
    model = {
        name: _mean([state["model"][name] for state in states])
        if name in trained or config.buffers == "average"
        else value.clone()
        for name, value in states[0]["model"].items()
    }
    note = {"step": step, "task": config.task, "run": config.label, "workers": config.workers}
    # one entry: safetensors writes several in a random order, and equal models should give equal files
    text = {"gossamer": json.dumps(note)}
    write_atomically(target, lambda part: part.write_bytes(save(model, metadata=text)))
    return step


def _mean(values: list[Tensor]) -> Tensor:
    if not values[0].is_floating_point():
        return values[0].clone()
    return torch.stack([value.double() for value in values]).mean(0).to(values[0].dtype)
