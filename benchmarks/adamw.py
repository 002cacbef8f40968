"""AdamW with gossip beside AdamW with DDP: the same GPT, batches and hyper-parameters, a text by characters.

    python -m benchmarks.adamw tinyshakespeare.txt            several minutes; goes on where it was stopped
    python -m benchmarks.adamw_page                           put the table into docs/from_ddp.md

Four workers on a ring, simulated. All-reduce stands for DDP: every AdamW steps with the average gradient.
With gossip it steps with that of its own batch. The hyper-parameters are a DDP script's, for all methods.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, Parameter
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_, vector_to_parameters
from torch.optim import AdamW, Optimizer

import gossamer
from benchmarks.adamw_page import results_table
from benchmarks.record import Lines, raw_lines, write
from gossamer._random import generator
from gossamer.tasks.files import read_bytes, windows
from gossamer.tasks.models import GPT

WORKERS, BLOCK, BATCH, STEPS, WARMUP = 4, 64, 12, 200, 20
LR, LAST, BETAS, WEIGHT_DECAY, CLIP = 4e-3, 0.1, (0.9, 0.99), 0.1, 1.0
METHODS: dict[str, tuple[int, str, str | None]] = {  # workers, algorithm, compressor
    "all-reduce, which is DDP": (WORKERS, "allreduce", None),
    "D-PSGD, uncompressed": (WORKERS, "dpsgd", None),
    "CHOCO, sign": (WORKERS, "choco", "sign"),
    "PowerGossip, rank 1": (WORKERS, "powergossip:1", None),
    "one worker alone": (1, "dpsgd", None),
}
QUOTED = ("key", "validation loss", "bytes a worker", "gamma", "commit")  # of a run's line


class Text:
    """A text as numbers of its characters: nine tenths to train on, the rest to judge by."""

    def __init__(self, path: Path) -> None:
        found, tokens = read_bytes(path).unique(return_inverse=True)
        self.characters = len(found)
        split = len(tokens) * 9 // 10
        self._train, self._judged = tokens[:split], windows(tokens[split:], BLOCK)

    def batch(self, seed: int, step: int, rank: int) -> tuple[Tensor, Tensor]:
        """Return windows from anywhere in the text, the same for every method."""
        rng = generator(seed, "batch", step, rank)
        starts = torch.randint(len(self._train) - BLOCK, (BATCH, 1), generator=rng)
        rows = self._train[starts + torch.arange(BLOCK + 1)]
        return rows[:, :-1], rows[:, 1:]

    @torch.no_grad()
    def validation_loss(self, model: Module) -> float:
        """Return the mean loss over all of the text's last tenth."""
        total = 0.0
        for x, y in zip(*(part.split(100) for part in self._judged), strict=True):
            total += float(cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum"))
        return total / self._judged[1].numel()


def lr(step: int) -> float:
    """Return the learning rate: a warm-up, then half a cosine down to a tenth."""
    if step < WARMUP:
        return LR * (step + 1) / WARMUP
    done = (step - WARMUP) / (STEPS - WARMUP)
    return LR * (LAST + (1 - LAST) * (1 + math.cos(math.pi * done)) / 2)


def adamw(parameters: Sequence[Parameter]) -> Optimizer:
    """Return AdamW that clips whatever it steps with: the average gradient with DDP, else its own."""
    matrices = {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": WEIGHT_DECAY}
    vectors = {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}
    optimizer = AdamW([matrices, vectors], lr=LR, betas=BETAS)

    def clip(*_: object) -> None:
        clip_grad_norm_(parameters, CLIP)

    optimizer.register_step_pre_hook(clip)
    return optimizer


def train(text: Text, job: tuple[str, int]) -> dict[str, Any]:
    """Train with a method and a seed; return what the average model has learned and what was sent."""
    torch.set_num_threads(1)  # more would add up in another order
    (workers, algorithm, compressor), seed = METHODS[job[0]], job[1]
    models = []
    for _ in range(workers):
        torch.manual_seed(seed)  # all start from the same model
        models.append(GPT(text.characters, BLOCK))

    def gradient(rank: int, parameters: dict[str, Any], step: int) -> None:
        x, y = text.batch(seed, step, rank)
        cross_entropy(models[rank](x).flatten(0, 1), y.flatten()).backward()

    starts = [dict(model.named_parameters()) for model in models]
    run = gossamer.Simulation(
        starts, "ring", algorithm, compressor, gradient=gradient, optimizer=adamw, seed=seed
    )
    for step in range(STEPS):
        for group in (group for optimizer in run.optimizers for group in optimizer.param_groups):
            group["lr"] = lr(step)
        run.step()
    found = {
        "consensus distance": run.consensus_distance(),
        "bytes a worker": run.bytes_sent[0],
        "gamma": getattr(run.algorithm, "gamma", None),
    }
    vector_to_parameters(run.average(), run.parameters(0).values())
    return {"validation loss": text.validation_loss(models[0]), **found}


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--cache", type=Path, default=raw_lines("adamw"))
    given = parser.parse_args()
    text, cache, key = Text(given.text), Lines("adamw", given.cache), "{}|seed {}".format
    missing = [(m, seed) for seed in given.seeds for m in METHODS if key(m, seed) not in cache.lines]
    with ProcessPoolExecutor(given.processes, multiprocessing.get_context("spawn")) as pool:
        jobs = {pool.submit(train, text, job): job for job in missing}
        for done in as_completed(jobs):
            cache.add({"key": key(*jobs[done]), **done.result()})
    methods = {
        method: [{name: cache.lines[key(method, seed)][name] for name in QUOTED} for seed in given.seeds]
        for method in METHODS
    }
    known = {
        "text": {"name": given.text.name, "sha256": hashlib.sha256(given.text.read_bytes()).hexdigest()},
        "parameters": sum(p.numel() for p in GPT(text.characters, BLOCK).parameters()),
        "workers, on a ring": WORKERS,
        "block, batch a worker, steps": [BLOCK, BATCH, STEPS],
        "optimizer": {"lr": LR, "betas": BETAS, "weight decay of matrices": WEIGHT_DECAY, "clip": CLIP},
        "schedule": f"{WARMUP} steps of warm-up, then half a cosine down to {LAST:g} of lr",
        "methods": methods,
    }
    write("adamw", known, cache)
    print(results_table(methods))


if __name__ == "__main__":
    main()
