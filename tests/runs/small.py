"""A run so small that tests can afford many, with faults on demand.

Used both as a module and as a task file: GOSSAMER_FAULT="2 rename 7" kills worker 2 with SIGKILL in
place of its 7th rename of a file; "1 loss 5" raises in its 5th loss, "1 exit 5" leaves there, and
"1 sleep 0.05" slows it down.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from gossamer.runs import Config
from gossamer.tasks import Task

FILE = str(Path(__file__))
RANK, KIND, NUMBER = [*os.environ.get("GOSSAMER_FAULT", "").split(), "", "", ""][:3]
CALLS = {"rename": 0, "loss": 0, "exit": 0}


def small(**settings) -> Config:
    own = {"task": FILE, "workers": 3, "steps": 12, "batch_size": 4, "lr": 0.1, "checkpoint_every": 2}
    own |= {"evaluate_every": 6, "log_every": 3, "deadline": 60.0}
    own |= {} if "algorithm" in settings else {"gamma": 0.2}  # a search would take longer than the run
    return Config(**(own | settings))


def task() -> Task:
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(120, 6, generator=rng)
    y = (x[:, :3].argmax(1) + (x[:, 3] > 0).long()) % 3

    def evaluate(model):
        with torch.no_grad():
            model.eval()
            outputs = model(x)
        return {"accuracy": float((outputs.argmax(1) == y).float().mean())}

    def model():
        return nn.Sequential(
            nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3)
        )

    return Task("small", model, TensorDataset(x, y), loss, evaluate, labels=y)


def loss(model, batch):
    if fault("loss"):
        raise RuntimeError("a mistake in the user's loss")
    if fault("exit"):
        sys.exit(0)
    if KIND == "sleep" and (RANK in ("all", os.environ.get("RANK"))):
        time.sleep(float(NUMBER))
    return cross_entropy(model(batch[0]), batch[1])


def fault(kind) -> bool:
    """Count a call, and tell whether it is the one that fails."""
    if kind != KIND or os.environ.get("RANK") != RANK:
        return False
    CALLS[kind] += 1
    return CALLS[kind] == int(NUMBER)


def deadly_replace(*args):
    if fault("rename"):
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(*args)


if KIND == "rename":
    replace, os.replace = os.replace, deadly_replace
