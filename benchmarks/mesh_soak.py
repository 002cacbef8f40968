"""Real faults: members of a mesh are killed, frozen and started again while they train.

    python -m benchmarks.mesh_soak --minutes 130 --write

Every algorithm in turn trains on eight processes of this machine, encrypted, first undisturbed for a
while and then with faults: kill -9 of anybody at any moment, three of eight at once, SIGSTOP for longer
than the silence after which a member counts as lost. Who was killed is started again and takes the model
from the others. At the end all are back, and each one's model is judged. Ends with an error if anything
was not as it must be, see `complaints`. Writes docs/results/mesh_soak.json after every algorithm, if it
is asked to.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import mean
from typing import Any

import zmq

from benchmarks.mesh_member import DEADLINE, SILENCE, Job, member
from benchmarks.record import write
from gossamer._mesh.keys import Key, from_z85
from gossamer._mesh.peers import Peer, Peers
from gossamer.runs.processes.ports import HeldPorts

N = 8
ALGORITHMS = {
    "choco topk": ("choco", "topk:0.1"),
    "choco sign": ("choco", "sign"),
    "dcd qsgd": ("dcd", "qsgd:8"),
    "deepsqueeze topk": ("deepsqueeze", "topk:0.1"),
    "powergossip": ("powergossip:1", None),
    "dpsgd": ("dpsgd", None),
}
PRELOADED = ["gossamer.runs.training.local_workers", "sklearn.datasets"]
START, BACK = 60.0, 60.0  # seconds for all to begin, and to be back at the end
POINT = 0.01  # of accuracy

Row = dict[str, Any]


@dataclass
class Phase:
    """One algorithm's members while faults are injected."""

    job: Job
    random: random.Random
    context: Any
    target: Callable[[Job, int], None] = member
    processes: dict[int, BaseProcess] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def start(self, rank: int) -> None:
        """Start a member."""
        process = self.context.Process(target=self.target, args=(self.job, rank), daemon=True)
        process.start()
        self.processes[rank] = process

    def kill(self, ranks: list[int]) -> None:
        """Kill members, and start them again after a while."""
        for rank in ranks:
            if self.processes[rank].is_alive():
                os.kill(self.processes[rank].pid or 0, signal.SIGKILL)
                self.counts["kills"] += 1
        for rank in ranks:
            self.processes[rank].join()
        time.sleep(self.random.choice((0.0, 0.5, 2.0, 2.0 * SILENCE)))
        for rank in ranks:
            self.start(rank)

    def freeze(self, rank: int, seconds: float) -> None:
        """Stop a member for longer than others wait for a sign of life."""
        pid = self.processes[rank].pid or 0
        os.kill(pid, signal.SIGSTOP)
        self.counts["freezes"] += 1
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)

    def disturb(self, until: float) -> None:
        """Inject faults until then."""
        while time.monotonic() < until:
            dice = self.random.random()
            if dice < 0.05:
                self.counts["three at once"] += 1
                self.kill(self.random.sample(range(N), 3))
            elif dice < 0.08:
                self.freeze(self.random.randrange(N), SILENCE + self.random.uniform(1.0, 4.0))
            else:
                self.kill([self.random.randrange(N)])
            time.sleep(self.random.uniform(0.2, 2.5))

    def lines(self, rank: int) -> list[dict[str, Any]]:
        """Return what a member has told."""
        path = self.job.folder / f"member-{rank}.jsonl"
        texts = path.read_text().splitlines() if path.is_file() else []
        return [json.loads(text) for text in texts if text.endswith("}")]

    def all_have(self, what: str, since: float) -> bool:
        """Return whether all members have told something since a time of time.time()."""
        return all(any(l["what"] == what and l["at"] >= since for l in self.lines(r)) for r in range(N))


def run_phase(job: Job, seconds: float, disturbed: bool, seed: int) -> Row:
    """Train for so long, with faults or without; return what came of it."""
    phase = Phase(job, random.Random(seed), mp.get_context("forkserver"))  # noqa: S311 - not a secret
    began = time.time()
    for rank in range(N):
        phase.start(rank)
    wait_until(lambda: phase.all_have("begun", began), START)
    end = time.monotonic() + seconds
    if disturbed:
        phase.disturb(end - 15.0)
    time.sleep(max(0.0, end - time.monotonic()))
    quiet = time.time()
    wait_until(lambda: phase.all_have("round", quiet), BACK)
    (job.folder / "stop").touch()
    for process in phase.processes.values():
        process.join(BACK)
    codes = [process.exitcode for process in phase.processes.values()]
    return _summary(phase, codes)


def _summary(phase: Phase, codes: list[int | None]) -> Row:
    everything = {rank: phase.lines(rank) for rank in range(N)}
    ends = [line for lines in everything.values() for line in lines if line["what"] == "ended"]
    slow = [line["seconds"] for lines in everything.values() for line in lines if line["what"] == "slow"]
    lost = [line for lines in everything.values() for line in lines if line["what"] == "lost"]
    rejoins = sum(l["what"] == "begun" and l["round"] > 0 for lines in everything.values() for l in lines)
    refused: Counter[str] = Counter()
    for end in ends:
        refused.update({why.partition(" ")[2]: count for why, count in end["refused"].items()})
    return {
        **phase.counts,
        "rejoins": rejoins,
        "ended": len(ends),
        "exit codes": codes,
        "rounds": max((end["round"] for end in ends), default=0),
        "accuracy": sorted(round(end["accuracy"], 4) for end in ends),
        "members at the end": [end["members"].count("ALIVE") for end in ends],
        "longest wait, s": max(slow, default=0.0),
        "messages that did not come": sum(line["messages"] for line in lost),
        "most of them in one round of a member": max((line["messages"] for line in lost), default=0),
        "rounds repeated or left out": sum(abs(line["rounds"]) for line in lost),
        "refused": dict(refused),
    }


def wait_until(done: Callable[[], bool], seconds: float) -> bool:
    """Wait until something is so; return whether it is, after so many seconds at most."""
    end = time.monotonic() + seconds
    while not (is_so := done()) and time.monotonic() < end:
        time.sleep(0.2)
    return is_so


def new_job(
    algorithm: str, compressor: str | None, folder: Path, addresses: Sequence[str] | None = None
) -> Job:
    """Return a phase's settings, with keys of its own, and ports of this machine unless others are given."""
    pairs = [map(from_z85, zmq.curve_keypair()) for _ in range(N)]
    keys = tuple(Key(f"member-{i}", *pair) for i, pair in enumerate(pairs))
    places = zip(keys, addresses or HeldPorts(N).addresses, strict=True)
    peers = Peers(tuple(Peer(i, key.name, where, key.public) for i, (key, where) in enumerate(places)))
    return Job(folder, peers, keys, algorithm, compressor)


def complaints(disturbed: Row, undisturbed: Row) -> list[str]:
    """Return what was not as it must be."""
    lost = mean(undisturbed["accuracy"]) - mean(disturbed["accuracy"])
    must = {
        "nobody was killed": disturbed.get("kills", 0) > 0,
        "nobody came back": disturbed["rejoins"] > 0,
        "one did not end well": disturbed["exit codes"] == [0] * N,
        "one was not back at the end": disturbed["ended"] == N,
        "one has waited longer than the deadline": disturbed["longest wait, s"] < DEADLINE,
        "one has lost a round": disturbed["rounds repeated or left out"] == 0,
        "the models are worse by a point or more": lost < POINT,
    }
    return [f"{disturbed['algorithm']}: {what}" for what, well in must.items() if not well]


def soak(number: int, name: str, seconds: float) -> tuple[Row, Row]:
    """Train with an algorithm undisturbed and with faults; return both rows."""
    rows = []
    for disturbed, share in ((False, 0.1), (True, 0.9)):
        with tempfile.TemporaryDirectory() as folder:
            job = replace(new_job(*ALGORITHMS[name], Path(folder)), seed=number)
            found = run_phase(job, share * seconds, disturbed, number)
        known = {"algorithm": name, "disturbed": disturbed, "minutes": round(share * seconds / 60, 2)}
        rows.append({**known, **found})
        print(json.dumps(rows[-1]), flush=True)
    return rows[0], rows[1]


def main() -> None:
    """Run all phases, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=130.0)
    parser.add_argument("--algorithms", nargs="*", choices=list(ALGORITHMS), default=list(ALGORITHMS))
    parser.add_argument("--write", action="store_true", help="write the results into docs/results")
    given = parser.parse_args()
    mp.get_context("forkserver").set_forkserver_preload(PRELOADED)
    about = {"members": N, "silence, s": SILENCE, "deadline, s": DEADLINE}
    rows: list[Row] = []
    wrong: list[str] = []
    for number, name in enumerate(given.algorithms):
        undisturbed, disturbed = soak(number, name, 60.0 * given.minutes / len(given.algorithms))
        rows += [undisturbed, disturbed]
        wrong += complaints(disturbed, undisturbed)
        if given.write:
            write("mesh_soak", {"about": about, "phases": rows})
    if wrong:
        sys.exit("; ".join(wrong))


if __name__ == "__main__":
    main()
