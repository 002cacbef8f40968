"""One member of a mesh that trains until it is told to stop, for benchmarks/mesh_soak.py and mesh_faults.py.

It appends what happens to a file of its own, one JSON line each: when it began and in which round, every
round that took longer than any before, and at the end how good its model is and what was refused. If it is
asked to, it also says every two seconds where it is and whom it sees, and leaves its model beside it.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gossamer
from gossamer._doors.optimizer import DecentralizedOptimizer
from gossamer._mesh.keys import Key
from gossamer._mesh.peers import Peers
from gossamer._mesh.transport import MeshTransport
from gossamer.lab import enter
from gossamer.runs import Config
from gossamer.runs.processes.worker import make_sampler
from gossamer.runs.training.learner import Learner

SILENCE, DEADLINE = 5.0, 30.0  # seconds
SLOW = 0.25  # seconds: rounds below this are not told
TICK = 2.0  # seconds of the machine's monotonic clock, the same for all members


@dataclass(frozen=True)
class Job:
    """What all members of a phase do."""

    folder: Path
    peers: Peers
    keys: tuple[Key, ...]
    algorithm: str
    compressor: str | None
    pause: float = 0.02  # seconds of each step beside the computing
    slow: dict[int, float] | None = None  # members whose steps take so many times as long
    wait: str | float = "all"
    lr: float = 0.05
    seed: int = 0
    namespaces: tuple[str, ...] = ()  # of the members, in a lab
    watched: bool = False  # whether members say where they are at every tick
    jump: tuple[int, float, float] | None = None  # whose clock jumps, after how many seconds, and how far

    def config(self) -> Config:
        """Return the settings of training."""
        return Config(
            task="digits",
            workers=len(self.peers.all),
            algorithm=self.algorithm,
            compressor=self.compressor,
            lr=self.lr,
            momentum=0.9,
            transport="mesh",
            seed=self.seed,
        )

    def join(self, rank: int) -> MeshTransport:
        """Return a member's end of the mesh."""
        return gossamer.mesh(
            self.peers.all[rank].address,
            self.peers,
            self.keys[rank],
            wait=self.wait,
            silence=SILENCE,
            deadline=DEADLINE,
        )


class Watch:
    """Says at every tick where a member is and whom it sees."""

    def __init__(self, job: Job, learner: Learner, optimizer: DecentralizedOptimizer) -> None:
        self._job, self._learner, self._optimizer = job, learner, optimizer
        self._losses: list[float] = []
        self._tick = int(time.monotonic() / TICK)

    def look(self, loss: float) -> dict[str, Any] | None:
        """Return what there is to see if a tick has passed, and leave the model in the folder."""
        self._losses.append(loss)
        tick = int(time.monotonic() / TICK)
        if not self._job.watched or tick == self._tick:
            return None
        self._tick, losses, self._losses = tick, self._losses, []
        rank, rounds = self._learner.rank, self._optimizer._edges  # noqa: SLF001 - edges are nobody else's matter
        assert rounds is not None, "it is on a mesh"
        model = torch.cat([v.flatten() for v in self._learner.read()])
        np.save(self._job.folder / f"model-{rank}-{tick}.npy", model.numpy())
        edges = rounds._hood.edges.items()  # noqa: SLF001
        return {
            "tick": tick,
            "round": self._optimizer.rounds,
            "loss": sum(losses) / len(losses),
            "accuracy": self._learner.evaluate()["accuracy"],
            "sees": [m.id for m in self._optimizer.members if m.status.name == "ALIVE"],
            "edges": sorted(j for j, edge in edges if edge.known and edge.weight > 0),
        }


def jump(seconds: float) -> tuple[float, float]:
    """Let this process's clock of the day jump; return what it says before and after."""
    true = time.time
    before = true()
    time.time = lambda: true() + seconds  # the mesh may rely on the monotonic clock only
    return before, time.time()


class Diary:
    """What a member tells, a line each, and which of its rounds were worse than others."""

    def __init__(self, path: Path, optimizer: DecentralizedOptimizer) -> None:
        self._file, self._optimizer = path.open("a", buffering=1), optimizer
        self._slowest, self._missed = SLOW, 0

    def tell(self, what: str, **more: Any) -> None:  # noqa: ANN401
        """Write a line."""
        self._file.write(json.dumps({"what": what, "at": time.time(), **more}) + "\n")

    def follow(self, before: int, took: float, computing: float) -> None:
        """Tell of a round if it took longer than any before, or if something of it was lost."""
        rounds, edges = self._optimizer.rounds, self._optimizer._edges  # noqa: SLF001 - nobody else's matter
        if took > self._slowest:
            self._slowest = took
            self.tell("slow", round=rounds, seconds=round(took, 3), step=round(computing, 3))
        missed = sum(edges.missed.values()) if edges is not None else 0
        if missed > self._missed or rounds != before + 1:
            self.tell("lost", round=before, messages=missed - self._missed, rounds=rounds - before - 1)
            self._missed = missed


def member(job: Job, rank: int) -> None:
    """Train as one member, from wherever the others are, until the phase is over."""
    if job.namespaces:
        enter(job.namespaces[rank])
    torch.set_num_threads(1)
    config = job.config()
    task = config.make_task()
    learner = Learner(config, task, make_sampler(config, task), rank)
    transport = job.join(rank)
    optimizer = gossamer.decentralize(
        learner.optimizer, learner.model, algorithm=config.make_algorithm(), transport=transport
    )
    diary = Diary(job.folder / f"member-{rank}.jsonl", optimizer)
    diary.tell("begun", round=optimizer.rounds)
    train(job, learner, optimizer, diary)
    refused = {f"{name} {why}": count for (name, why), count in transport.protocol.refused.items()}
    there = [m.status.name for m in transport.members]
    diary.tell("ended", round=optimizer.rounds, **learner.evaluate(), refused=refused, members=there)
    optimizer.close()


def train(job: Job, learner: Learner, optimizer: DecentralizedOptimizer, diary: Diary) -> None:
    """Do steps and rounds until there is a file that says stop."""
    pause = job.pause * (job.slow or {}).get(learner.rank, 1.0)
    watch, start = Watch(job, learner, optimizer), time.monotonic()
    to_jump = job.jump is not None and job.jump[0] == learner.rank
    while not (job.folder / "stop").exists():
        began, before = time.monotonic(), optimizer.rounds
        loss = learner.backward(optimizer.steps, job.lr)
        time.sleep(pause)
        computing = time.monotonic() - began
        optimizer.step()
        optimizer.zero_grad()
        diary.follow(before, time.monotonic() - began - computing, computing)
        if (seen := watch.look(loss)) is not None:
            diary.tell("state", **seen, computing=round(computing, 4))
        if to_jump and job.jump is not None and time.monotonic() - start > job.jump[1]:
            to_jump, (earlier, later) = False, jump(job.jump[2])
            diary.tell("jumped", before=earlier, after=later)
        if optimizer.rounds % 200 == 0:
            diary.tell("round", round=optimizer.rounds)
