"""One of the workers: trains what a list of jobs says, one after the other, and writes down how it went.

    python -m benchmarks.peers.worker FOLDER     with RANK and WORLD_SIZE set

FOLDER/jobs.json holds the jobs; every worker answers with FOLDER/worker-RANK.jsonl, a line a job, and
leaves its parameters in FOLDER/snapshots where a job asks for them. Nobody evaluates here: the average
model is made and judged from the snapshots, so that it costs the network nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.mesh_workers import Invitation
from benchmarks.peers.methods import METHODS
from benchmarks.peers.trainers import Paused, Trainer
from gossamer.lab.namespaces import DEVICE
from gossamer.runs import Config
from gossamer.runs.processes.worker import make_sampler
from gossamer.runs.training.learner import Learner
from gossamer.runs.training.timetable import Timetable
from gossamer.transport import START_UP

LONG = 2.0  # seconds; what takes longer is measured with fewer steps


class Worker:
    """The process's rank, and its way to all others."""

    def __init__(self, folder: Path) -> None:
        dist.init_process_group("gloo", timeout=START_UP)
        self.folder, self.rank = folder, dist.get_rank()

    def run(self, number: int, job: dict[str, Any]) -> dict[str, Any]:
        """Do a job and return what it took."""
        config = Config(**job["config"])
        task = config.make_task()
        sampler = make_sampler(config, task)
        kind = partial(Paused, pause=job["pause"]) if job["pause"] else Learner
        learner = kind(config, task, sampler, self.rank)
        plan = Timetable.of(config, sampler)
        transport = None
        if job["mesh"]:  # every job has a run of its own: late frames of the last one are refused
            transport = Invitation(self.folder).join(self.rank, run=str(number))
        trainer = METHODS[job["method"]].trainer(learner, config, job["gamma"], transport)
        marks = self._train(trainer, plan, number, job)
        trainer.close()
        return {"job": number, "marks": marks}

    def _train(
        self, trainer: Trainer, plan: Timetable, number: int, job: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Train and return the state of time, wire and processor at the steps that matter."""
        warm, done, steps = 0, 0, plan.steps
        if job["measure"]:
            warm = max(trainer.warm_up, 2 * trainer.period)
            seconds = self._warm_up(trainer, plan, warm)
            done = warm + trainer.refill
            steps = done + affordable(seconds, trainer.period, job["measure"])
        dist.barrier()
        for step in range(warm, done):
            trainer.step(step, plan.lr(step))
        marks = [mark(done)]
        for step in range(done, steps):
            trainer.step(step, plan.lr(step))
            if job["snapshots"] and (step + 1) % job["snapshots"] == 0:
                marks.append(mark(step + 1))
                self._snapshot(trainer, number, step + 1)
        marks.append(mark(steps))
        dist.barrier()
        return marks

    def _warm_up(self, trainer: Trainer, plan: Timetable, steps: int) -> float:
        """Take a few steps and return the seconds of the last period of them, worker 0's for all."""
        ends = [time.monotonic()]
        for step in range(steps):
            trainer.step(step, plan.lr(step))
            ends.append(time.monotonic())
        spent = torch.tensor([ends[-1] - ends[-1 - trainer.period]], dtype=torch.float64)
        dist.broadcast(spent, 0)
        return float(spent)

    def _snapshot(self, trainer: Trainer, number: int, step: int) -> None:
        vector = torch.cat([p.detach().reshape(-1) for p in trainer.learner.parameters.values()])
        np.save(self.folder / "snapshots" / f"{number}-{step}-{self.rank}.npy", vector.numpy())


def affordable(seconds: float, period: int, budget: float) -> int:
    """Return how many steps to measure if a period of them takes so long: whole periods."""
    fewest = 2 if seconds > LONG * period else 8
    steps = min(max(round(budget * period / seconds), fewest), 200)
    return -(-steps // period) * period


def mark(step: int) -> dict[str, Any]:
    """Return the time, the bytes that the kernel has sent, and this process's processor time."""
    return {"step": step, "time": time.monotonic(), "bytes": kernel_bytes(), "cpu": time.process_time()}


def kernel_bytes() -> int:
    """Return the bytes sent over the interface of this process's namespace, as the kernel counts them."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    sent = {name.strip(): int(rest.split()[8]) for name, _, rest in (line.partition(":") for line in lines)}
    return sent[DEVICE if DEVICE in sent else "lo"]


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    worker = Worker(folder)
    with (folder / f"worker-{worker.rank}.jsonl").open("w") as answers:
        for number, job in enumerate(json.loads((folder / "jobs.json").read_text())):
            answers.write(json.dumps(worker.run(number, job)) + "\n")
            answers.flush()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    main()
