"""What a newcomer costs the others, and what happens if its donor dies or freezes in mid-transfer.

    sudo python -m benchmarks.mesh_joiners

Eight encrypted members in the lab, 100 Mbit/s and 2 ms, train a model of 4.3 million parameters with CHOCO
and sign. One of them is killed and starts again: it takes 35 MB, the model and what its donor shows, from a
neighbour. In another run the donor is killed in the middle of that, in others it is frozen, with wait="all"
and with wait="quorum". Every member's steps are timed. Writes docs/results/mesh_joiners.json: how much longer
than the median step before it the longest one took while the newcomer came, counted in steps, and how much
longer the longest one took while nobody came.

A gradient takes 0.2 s and no processor, as on an accelerator: eight members share the cores of one machine
here, and computed gradients would show how they share those.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import random
import signal
import tempfile
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch

import gossamer
from benchmarks.mesh_member import SILENCE, Job
from benchmarks.mesh_soak import PRELOADED, START, N, Phase, new_job, wait_until
from benchmarks.record import write
from gossamer._mesh.newcomer import Donor
from gossamer.lab import Lab, Scenario, enter
from gossamer.tasks import models

PORT = 7000
WIDTHS = (64, 2048, 2048, 10)
NEW = 5  # who comes again
BEFORE, INTO, AFTER = 20.0, 0.7, 8.0  # seconds of undisturbed rounds, into the transfer, after it
GRADIENT = 0.2  # seconds
QUORUM = 'the donor freezes, wait="quorum"'
HOW = {
    "undisturbed": None,
    "the donor is killed": signal.SIGKILL,
    "the donor freezes": signal.SIGSTOP,
    QUORUM: signal.SIGSTOP,
}

Row = dict[str, Any]


def member(job: Job, rank: int) -> None:
    """Train on random data until told to stop; tell when each round ended and how long it took."""
    enter(job.namespaces[rank])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = models.mlp(*WIDTHS)
    serve = Donor.answer

    def answer(donor: Donor, *known: Any) -> None:  # noqa: ANN401
        (job.folder / f"donor-{rank}").touch()
        serve(donor, *known)

    setattr(Donor, "answer", answer)  # noqa: B010 - only to know who it is
    transport = job.join(rank)
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = gossamer.decentralize(
        inner, model, algorithm=job.algorithm, compressor=job.compressor, transport=transport, gamma=0.3
    )
    gradient = [torch.randn_like(x) for x in model.parameters()]
    with (job.folder / f"member-{rank}.jsonl").open("a", buffering=1) as log:
        log.write(json.dumps({"what": "begun", "at": time.time(), "round": optimizer.rounds}) + "\n")
        while not (job.folder / "stop").exists():
            began = time.time()
            time.sleep(GRADIENT)
            for x, g in zip(model.parameters(), gradient, strict=True):
                x.grad = g
            optimizer.step()
            now = time.time()
            log.write(json.dumps({"what": "round", "at": now, "took": now - began}) + "\n")
    optimizer.close()


def scenario(how: signal.Signals | None, wait: str) -> Row:
    """Let one member come again while its donor is well, or not; return what it meant for the others."""
    with tempfile.TemporaryDirectory() as folder, Lab(Scenario.uniform(N, "100mbit", "2ms")) as lab:
        addresses = [f"{lab.address(i)}:{PORT}" for i in range(N)]
        job = new_job("choco", "sign", Path(folder), addresses)
        job = replace(job, namespaces=tuple(lab.namespace(i) for i in range(N)), wait=wait)
        phase = Phase(job, random.Random(0), mp.get_context("forkserver"), member)  # noqa: S311 - not a secret
        try:
            return _watched(phase, how)
        finally:
            for process in phase.processes.values():
                process.kill()


def _watched(phase: Phase, how: signal.Signals | None) -> Row:
    began = time.time()
    for rank in range(N):
        phase.start(rank)
    assert wait_until(lambda: phase.all_have("begun", began), START), "they have not begun"
    phase.processes[NEW].kill()
    phase.processes[NEW].join()
    time.sleep(3 * SILENCE)  # the others have closed the gap
    quiet = time.time()
    time.sleep(BEFORE)
    asked = time.time()
    phase.start(NEW)
    donor = _stop_donor(phase, how, asked)
    assert wait_until(lambda: _begun(phase, asked) is not None, START), "it has not joined"
    joined = _begun(phase, asked)
    time.sleep(AFTER)
    (phase.job.folder / "stop").touch()
    return _row(phase, donor if how else None, quiet, asked, joined or 0.0)


def _stop_donor(phase: Phase, how: signal.Signals | None, asked: float) -> int:
    """Wait until somebody has been asked for the model; stop it in the middle of the transfer."""
    folder = phase.job.folder
    assert wait_until(lambda: any(folder.glob("donor-*")), START), "nobody was asked"
    donor = int(next(folder.glob("donor-*")).name.partition("-")[2])
    time.sleep(INTO)
    if how is not None:
        os.kill(phase.processes[donor].pid or 0, how)
        assert _begun(phase, asked) is None, "the transfer was over already"
    return donor


def _begun(phase: Phase, asked: float) -> float | None:
    """Return when the newcomer began, if it has."""
    times = [line["at"] for line in phase.lines(NEW) if line["what"] == "begun"]
    return next((at for at in times if at > asked), None)


def _row(phase: Phase, lost: int | None, quiet: float, asked: float, joined: float) -> Row:
    worst, usual, longest = dict[int, float](), list[float](), list[float]()
    for rank in set(range(N)) - {NEW, lost}:
        lines = [line for line in phase.lines(rank) if line["what"] == "round"]
        before = [line["took"] for line in lines if quiet < line["at"] < asked]
        while_joining = [line["took"] for line in lines if asked < line["at"] < joined + AFTER / 2]
        usual.append(median(before))
        longest.append(max(before) / median(before) - 1)
        worst[rank] = max(while_joining) / median(before) - 1
    return {
        "seconds from start to the first round": round(joined - asked, 2),
        "median step before, s": round(median(usual), 3),
        "longest step before, in steps more": round(max(longest), 2),
        "longest step while it comes, in steps more": round(max(worst.values()), 2),
        "of each member": [round(worst[rank], 2) for rank in sorted(worst)],
    }


def main() -> None:
    """Run all three, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry", action="store_true", help="print only")
    given = parser.parse_args()
    mp.get_context("forkserver").set_forkserver_preload(PRELOADED)
    rows = []
    for name, how in HOW.items():
        rows.append({"donor": name, **scenario(how, "quorum" if name == QUORUM else "all")})
        print(json.dumps(rows[-1]), flush=True)
    if not given.dry:
        about = {"members": N, "parameters": sum((a + 1) * b for a, b in pairwise(WIDTHS))}
        write("mesh_joiners", {"about": {**about, "silence, s": SILENCE}, "joins": rows})


if __name__ == "__main__":
    main()
