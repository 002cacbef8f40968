"""Eight workers somewhere, a list of jobs, and their answers as they come."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch.nn.utils import vector_to_parameters

from benchmarks.mesh_workers import Invitation
from gossamer._processes import Place, WorkerCommands
from gossamer.runs import Config

IN_A_ROW = 4  # snapshots that are good enough

Job = dict[str, Any]
Answers = list[list[dict[str, Any]]]  # every worker's marks


def job(
    method: str,
    config: Config,
    gamma: float | None,
    *,
    measure: float = 0,
    pause: float = 0,
    snapshots: int = 0,
    mesh: bool = False,
) -> Job:
    """Return a job: the steps of a config, or as many as fit into `measure` seconds.

    With a pause, gradients are not computed but waited for. Messages travel over gloo or the mesh.
    """
    settings = json.loads(config.to_json())
    return {
        "method": method,
        "config": settings,
        "gamma": gamma,
        "measure": measure,
        "pause": pause,
        "snapshots": snapshots,
        "mesh": mesh,
    }


def work_through(place: Place, jobs: Sequence[Job], handle: Handle, addresses: Sequence[str] = ()) -> None:
    """Let workers do all jobs and hand each one's answers over when they are complete.

    If a worker fails, as when a run diverges, that job's answer is None and the rest goes to new workers.
    Jobs over the mesh need an address for every worker, where it listens.
    """
    left = list(jobs)
    while left:
        with TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "snapshots").mkdir()
            if addresses:
                Invitation.write(folder, addresses)
            (folder / "jobs.json").write_text(json.dumps(left))
            done = _watch(place, folder, left, handle)
            if done < len(left):
                handle(left[done], None)
                done += 1
        left = left[done:]


def _watch(place: Place, folder: Path, jobs: Sequence[Job], handle: Handle) -> int:
    """Start workers, hand over what they answer, and return how many jobs they have done."""
    command = [sys.executable, "-m", "benchmarks.peers.worker", str(folder)]
    workers = WorkerCommands(place, command, stderr=subprocess.DEVNULL)
    done = 0
    try:
        while True:
            ended = workers.codes()
            for answers in _answers(folder, place.n)[done:]:
                handle(jobs[done], Outcome(answers, folder, done))
                done += 1
            if done == len(jobs):
                workers.wait()
                return done
            if any(ended):
                return done
            time.sleep(0.2)
    finally:
        workers.kill()


def _answers(folder: Path, n: int) -> list[Answers]:
    files = [folder / f"worker-{rank}.jsonl" for rank in range(n)]
    if not all(path.is_file() for path in files):
        return []
    lines = [path.read_text().split("\n")[:-1] for path in files]
    return [[json.loads(line)["marks"] for line in each] for each in zip(*lines, strict=False)]


@dataclass(frozen=True)
class Outcome:
    """What workers tell of a job."""

    answers: Answers
    folder: Path
    number: int

    def speed(self) -> dict[str, float]:
        """Return what a step has taken, from the first worker's start to the last one's end."""
        first, last = [marks[0] for marks in self.answers], [marks[-1] for marks in self.answers]
        steps = last[0]["step"] - first[0]["step"]

        def a_step(what: str) -> float:
            return float(mean(b[what] - a[what] for a, b in zip(first, last, strict=True)) / steps)

        return {
            "seconds": (max(m["time"] for m in last) - min(m["time"] for m in first)) / steps,
            "bytes": a_step("bytes"),
            "cpu seconds": a_step("cpu"),
            "steps": steps,
        }

    def curve(self, config: Config, reached: Callable[[float], bool]) -> list[dict[str, float]]:
        """Return the metric of the average model at every snapshot, with the seconds until then.

        Nobody looks further when some in a row were good enough: judging takes as long as training.
        """
        task = config.make_task()
        model, begun = task.model(), min(marks[0]["time"] for marks in self.answers)
        parameters = [p for p in model.parameters() if p.requires_grad]
        found = []
        for k, at in enumerate(self.answers[0][1:-1], 1):
            average = np.mean(
                [np.load(path) for path in self._snapshots(at["step"])], axis=0, dtype=np.float64
            )
            vector_to_parameters(torch.from_numpy(average.astype(np.float32)), parameters)
            until = max(marks[k]["time"] for marks in self.answers) - begun
            metric = task.evaluate(model)[task.metric]
            found.append({"step": at["step"], "seconds": until, "metric": metric})
            if len(found) >= IN_A_ROW and all(reached(x["metric"]) for x in found[-IN_A_ROW:]):
                break
        for path in (self.folder / "snapshots").glob(f"{self.number}-*"):
            path.unlink()
        return found

    def _snapshots(self, step: int) -> list[Path]:
        folder, ranks = self.folder / "snapshots", range(len(self.answers))
        return [folder / f"{self.number}-{step}-{rank}.npy" for rank in ranks]


Handle = Callable[[Job, Outcome | None], None]
