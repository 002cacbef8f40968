"""Eight members of a mesh in a lab that train for a while, watched, and what is to be seen of them."""

from __future__ import annotations

import multiprocessing as mp
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.mesh_member import TICK, Job
from benchmarks.mesh_soak import ALGORITHMS, BACK, PRELOADED, START, N, Phase, new_job, wait_until
from gossamer.lab import Lab, Scenario

PORT = 7000
HALVES = (range(N // 2), range(N // 2, N))
Crossing = list[tuple[int, int]]  # pairs of members


@dataclass
class Crew:
    """Members in a lab, and the faults that can be done to them. Every fault proves that it happened."""

    phase: Phase
    lab: Lab
    proofs: dict[str, Any] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)  # ticks at which something was done

    def sleep(self, seconds: float) -> None:
        """Let the members train."""
        time.sleep(seconds)

    def mark(self, what: str) -> None:
        """Remember when something is done."""
        self.times[what] = int(time.monotonic() / TICK)

    def cut(self, pairs: Crossing, seconds: float) -> None:
        """Let nothing through between pairs for so long."""
        for i, j in pairs:
            self.lab.cut(i, j)
        time.sleep(min(0.2, seconds / 4))  # what was on its way has arrived
        before, began = self.lab.stats(), time.monotonic()
        time.sleep(seconds)
        after = self.lab.stats()
        for i, j in pairs:
            assert after.delivered[i][j] == before.delivered[i][j], f"{i} has reached {j} over a cut link"
            assert after.delivered[j][i] == before.delivered[j][i], f"{j} has reached {i} over a cut link"
            self.lab.heal(i, j)
        self._add("cuts", 1)
        self._add("seconds cut", round(time.monotonic() - began, 1))
        self._add("packets lost in cuts", after.lost - before.lost)

    def freeze(self, ranks: Sequence[int], seconds: float) -> None:
        """Stop all threads of members for so long, as if their machines slept."""
        pids = [self.phase.processes[rank].pid or 0 for rank in ranks]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds / 2)
        assert all(_state(pid) == "T" for pid in pids), "one is awake"
        time.sleep(seconds / 2)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        self._add("members frozen", len(pids))
        self._add("seconds frozen", seconds)

    def _add(self, what: str, value: float) -> None:
        self.proofs[what] = round(self.proofs.get(what, 0) + value, 1)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@dataclass
class Seen:
    """What was to be seen of members, tick by tick."""

    states: dict[int, dict[int, dict[str, Any]]]  # by tick and rank
    distances: dict[int, float]  # root mean square of |x_i - average|, by tick
    ended: list[dict[str, Any]]
    codes: list[int | None]
    jumped: list[dict[str, Any]]
    times: dict[str, int]
    proofs: dict[str, Any]
    longest: float  # seconds of a round

    def at(self, tick: int, what: str) -> list[Any]:
        """Return what all members said then, or at the next tick at which all said something."""
        full = [t for t in sorted(self.states) if t >= tick and len(self.states[t]) == N]
        return [self.states[full[0]][r][what] for r in range(N)] if full else []

    @property
    def last(self) -> int:
        """The last tick at which all members said something."""
        return max(t for t, states in self.states.items() if len(states) == N)

    def distance(self, tick: int, over: int = 3) -> float:
        """Return the distance of models to their average, over the ticks up to this one."""
        return mean(self.distances[t] for t in sorted(self.distances) if t <= tick and t > tick - over)

    def row(self) -> dict[str, Any]:
        """Return what every scenario tells."""
        return {
            **self.proofs,
            "rounds": max(end["round"] for end in self.ended),
            "lowest accuracy": round(min(end["accuracy"] for end in self.ended), 4),
            "distance": round(self.distance(self.last), 5),
            "longest wait, s": self.longest,
            "all ended well": self.codes == [0] * N,
            "all see all": all(len(seen) == N for seen in self.at(self.last, "sees")),
            "edges are those of the ring": self.at(self.last, "edges") == RING,
        }


RING = [sorted({(i - 1) % N, (i + 1) % N}) for i in range(N)]


def run(
    name: str,
    seconds: float,
    fault: Callable[[Crew], None] | None = None,
    loss: float = 0.0,
    **more: Any,  # noqa: ANN401 - they are those of Job
) -> Seen:
    """Train with an algorithm for so long while a fault is done; return what was to be seen."""
    mp.get_context("forkserver").set_forkserver_preload(PRELOADED)
    scenario = Scenario.uniform(N, "100mbit", "2ms", loss=loss)
    with tempfile.TemporaryDirectory() as folder, Lab(scenario) as lab:
        job = new_job(*ALGORITHMS[name], Path(folder), [f"{lab.address(i)}:{PORT}" for i in range(N)])
        places = tuple(lab.namespace(i) for i in range(N))
        job = replace(job, namespaces=places, watched=True, **more)
        phase = Phase(job, random.Random(0), mp.get_context("forkserver"))  # noqa: S311 - not a secret
        crew, began = Crew(phase, lab), time.time()
        try:
            for rank in range(N):
                phase.start(rank)
            assert wait_until(lambda: phase.all_have("begun", began), START), "they have not begun"
            crew.mark("begun")
            end = time.monotonic() + seconds
            if fault is not None:
                fault(crew)
            time.sleep(max(0.0, end - time.monotonic()))
            return _finish(crew, job)
        finally:
            for process in phase.processes.values():
                process.kill()


def _finish(crew: Crew, job: Job) -> Seen:
    (job.folder / "stop").touch()
    for process in crew.phase.processes.values():
        process.join(BACK)
    codes = [process.exitcode for process in crew.phase.processes.values()]
    states: dict[int, dict[int, dict[str, Any]]] = {}
    lines = [(rank, line) for rank in range(N) for line in crew.phase.lines(rank)]
    for rank, line in lines:
        if line["what"] == "state":
            states.setdefault(line["tick"], {})[rank] = line
    stats = crew.lab.stats()
    crew.proofs["packets"], crew.proofs["packets lost"] = stats.packets, stats.lost
    return Seen(
        states,
        {tick: distance(job.folder, tick) for tick, seen in states.items() if len(seen) == N},
        [line for _, line in lines if line["what"] == "ended"],
        codes,
        [line for _, line in lines if line["what"] == "jumped"],
        crew.times,
        crew.proofs,
        max((line["seconds"] for _, line in lines if line["what"] == "slow"), default=0.0),
    )


def distance(folder: Path, tick: int) -> float:
    """Return how far members were from their average."""
    models = np.stack([np.load(folder / f"model-{rank}-{tick}.npy") for rank in range(N)]).astype(float)
    return float(np.sqrt(((models - models.mean(0)) ** 2).sum(1).mean()))
