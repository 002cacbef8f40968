"""A run so small that tests can afford many, with faults on demand.

Used both as a module and as a task file: GOSSAMER_FAULT="2 rename 7" kills worker 2 with SIGKILL in
place of its 7th rename of a file; "1 loss 5" raises in its 5th loss, "1 exit 5" leaves there, and
"1 sleep 0.05" slows it down. With "all hold 5" every worker waits in its 5th loss until a signal has come
or the file `go` is there, with "all freeze 5" for the file alone; in GOSSAMER_HELD it leaves a file `held-0`
when it begins to wait, and `told-0` when it has had a signal. "all sleep 0.1, all hold 12" does both.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import TensorDataset

from gossamer.runs import Config
from gossamer.tasks import Task

FILE = str(Path(__file__))
FAULTS = [text.split() for text in os.environ.get("GOSSAMER_FAULT", "").split(",") if text]
CALLS: Counter[str] = Counter()


def small(**settings: Any) -> Config:
    own: dict[str, Any] = {
        "task": FILE,
        "workers": 3,
        "steps": 12,
        "batch_size": 4,
        "lr": 0.1,
        "checkpoint_every": 2,
    }
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
            right = (outputs.argmax(1) == y).float().mean()
            return {"accuracy": float(right), "test loss": float(cross_entropy(outputs, y))}

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
    if fault("hold"):
        hold(Path(os.environ["GOSSAMER_HELD"]), signals=True)
    if fault("freeze"):
        hold(Path(os.environ["GOSSAMER_HELD"]), signals=False)
    time.sleep(float(wanted("sleep") or 0))
    return cross_entropy(model(batch[0]), batch[1])


def wanted(kind) -> str | None:
    """Return the number of a fault that this worker is to have."""
    rank = os.environ.get("RANK")
    return next((number for who, what, number in FAULTS if what == kind and who in ("all", rank)), None)


def fault(kind) -> bool:
    """Count a call, and tell whether it is the one that fails."""
    number = wanted(kind)
    CALLS[kind] += 1
    return number is not None and CALLS[kind] == int(number)


def hold(folder, *, signals) -> None:
    """Wait until the test lets this worker go on."""
    rank = os.environ["RANK"]
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    before = signal.set_wakeup_fd(theirs)
    (folder / f"held-{rank}").touch()
    while not (folder / "go").exists():
        if select.select([ours], [], [], 0.05)[0]:
            os.read(ours, 1)
            (folder / f"told-{rank}").touch()
            if signals:
                break
    signal.set_wakeup_fd(before)


def deadly_replace(*args):
    if fault("rename"):
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(*args)


if any(what == "rename" for _, what, _ in FAULTS):
    replace, vars(os)["replace"] = os.replace, deadly_replace
