"""What the tests of all three frameworks share: a small model, its data, and the loop written by hand."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from filelock import FileLock
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import Dataset

import gossamer
from tests.support.processes import run_processes

WORKERS, BATCH, LR, CLIP = 2, 4, 0.1, 0.5
STEPS, ACCUMULATE = 6, 2  # optimizer steps of an epoch, batches of a step
BATCHES = STEPS * ACCUMULATE
EXAMPLES = BATCHES * BATCH * WORKERS
Options = dict[str, Any]  # of gossamer.decentralize
CHOCO: Options = {
    "topology": "ring",
    "algorithm": "choco",
    "compressor": "sign",
    "gamma": 0.5,
    "deadline": 200.0,
}
RESUMED: dict[str, Options] = {
    "choco": CHOCO,
    "powergossip": {"algorithm": "powergossip:1", "deadline": 200.0},
}


def needs(package: str, extra: str = "") -> pytest.MarkDecorator:
    """Skip tests where a framework is missing. It is not imported here: that takes seconds."""
    missing = find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"needs {package}: pip install 'gossamer[{extra or package}]'")


class Net(nn.Module):
    """Has what makes a resume hard: statistics that differ among workers, and randomness."""

    def __init__(self, dropout: float = 0.0, seed: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.layers = nn.Sequential(
                nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, 3)
            )

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.layers(x)
        return (
            {"logits": logits}
            if labels is None
            else {"loss": cross_entropy(logits, labels), "logits": logits}
        )


class Points(Dataset):
    """Three clouds of points."""

    def __init__(self, examples: int, seed: int = 0) -> None:
        rng = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(3, (examples,), generator=rng)
        self.x = torch.randn(examples, 6, generator=rng) + self.labels.unsqueeze(1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: Any) -> dict[str, Tensor]:
        return {"x": self.x[i], "labels": self.labels[i]}


def in_turn(rank: int, n: int) -> list[dict[str, Tensor]]:
    """Return a worker's batches where they are dealt out one after the other."""
    examples = Points(EXAMPLES)
    return [examples[i : i + BATCH] for i in range(0, len(examples), BATCH)][rank::n]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)


def by_hand(
    batches: list[dict[str, Tensor]], *, accumulate: int, decay: Callable[[int], float], bf16: bool = False
) -> dict[str, Any]:
    """Train on these batches with a plain loop around Gossamer, and return what came out on this worker."""
    model = Net()
    optimizer = gossamer.decentralize(sgd(model), model, **CHOCO)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, decay)
    for i, batch in enumerate(batches, start=1):
        with torch.autocast("cpu", dtype=torch.bfloat16) if bf16 else nullcontext():
            loss = model(**batch)["loss"]
        (loss.float() / accumulate).backward()
        if i % accumulate == 0:
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    return outcome(snapshot(model), optimizer)


def outcome(model: dict[str, Tensor], optimizer: gossamer.DecentralizedOptimizer) -> dict[str, Any]:
    """Return what is compared."""
    return {"model": model, "rounds": optimizer.rounds, "bytes": optimizer.bytes_sent}


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Return whether two models are equal bit for bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def mean(a: dict[str, Tensor], b: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the average of two workers' models; what is not a number with a fraction is worker 0's."""
    return {name: (a[name] + b[name]) / 2 if a[name].is_floating_point() else a[name] for name in a}


def require_as_by_hand(ran: list[dict[str, Any]]) -> None:
    """Clipping, accumulation and schedule end where the loop that was written by hand does."""
    for worker in ran:
        found, hand = worker["found"], worker["hand"]
        assert same(found["model"], hand["model"])
        assert found["rounds"] == hand["rounds"] == STEPS, "a round for a step, not for a batch"
        assert found["bytes"] == hand["bytes"]


def require_average_left(ran: list[dict[str, Any]]) -> None:
    """Workers are apart in training, and each is left with the average of all."""
    own = [worker["found"]["model"] for worker in ran]
    assert not same(*own), "workers are apart in training"
    for worker in ran:
        assert same(worker["left"], mean(*own))


def require_same_end(once: dict[str, Any], again: dict[str, Any]) -> None:
    """A run that went on from a checkpoint has the bits of one that was never stopped."""
    assert same(once["model"], again["model"])
    assert (once["rounds"], once["bytes"]) == (again["rounds"], again["bytes"])


@contextmanager
def no_ddp() -> Iterator[None]:
    """Fail if anything puts DDP around a model."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("DDP was put around the model")

    with mock.patch.object(nn.parallel.DistributedDataParallel, "__init__", refuse):
        yield


def run_once(job: Callable[..., Any], factory: pytest.TempPathFactory) -> list[Any]:
    """Return what each of two workers of a job returns; it is run once, whichever test process is first.

    Importing a framework takes longer than its tests, so each has one job with all that is tested.
    """
    name, base = job.__module__.rsplit(".", 1)[-1], factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # shared by the test processes of this session
    done = base / f"{name}.pt"
    with FileLock(base / f"{name}.lock"):
        if not done.exists():
            folder = base / name
            folder.mkdir()
            torch.save(run_processes(WORKERS, _as_if_by_torchrun, job, str(folder)), done)
    results = torch.load(done, weights_only=False)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def _as_if_by_torchrun(rank: int, n: int, job: Callable[..., Any], folder: str) -> Any:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(n),
        "LOCAL_WORLD_SIZE": str(n),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",  # not used: the process group is there already
        "TORCHELASTIC_RUN_ID": "tests",
    }
    try:
        with no_ddp():
            return job(rank, n, Path(folder))
    except Exception as error:
        error.add_note(traceback.format_exc())  # the traceback itself does not survive the way to the test
        raise
