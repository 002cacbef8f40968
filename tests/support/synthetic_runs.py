"""Run folders as `gossamer train` leaves them, with numbers made up by a formula."""

from __future__ import annotations

import json
import math
import random
from dataclasses import asdict, replace

from gossamer.runs import Config, RunFolder
from gossamer.runs.files import MetricsFile
from gossamer.runs.summary import Graph, Link, Partition, Summary

FULL = 54_000_000
CONFIG = Config(
    compressor="topk:0.01",
    epochs=30,
    lr_scale="linear",
    warmup=2,
    schedule="cosine",
    weight_decay=0.0001,
    partition="dirichlet:0.1",
    deadline=60,
)
COMMAND = "gossamer train --task digits --workers 8 --algorithm choco --compressor topk:0.01"
MACHINE = {  # in place of this one, so that pages are the same everywhere
    "gossamer": "0.2.0",
    "torch": "2.13.0",
    "numpy": "2.4.6",
    "python": "3.11.7",
    "platform": "Linux-6.1.0-x86_64-with-glibc2.36",
    "commit": "4dfa232",
    "cpus": 2,
    "started": "2026-11-16T05:10:00+00:00",
}


def write(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")


def ring(n):
    return [[i, (i + 1) % n] for i in range(n)]


def run_folder(
    folder,
    *,
    steps=330,
    sent=1_200_000,
    full=FULL,
    seconds=12.3,
    top=0.963,
    status="finished",
    error=None,
    edges=None,
    uneven=0.0,
    directed=False,
    summary=True,
    evaluate=True,
    seed=0,
    clock="measured",
    changes=None,
    foreign=None,
    **settings,
):
    """Write a run whose accuracy climbs to `top`, and return its folder.

    `settings` are a Config's. `foreign` ones go as they are into config.json, and `changes` into
    summary.json: the report must stand what other versions have written.
    """
    config = replace(CONFIG, **settings)
    plan = asdict(config) | (foreign or {})
    workers, noise, diverged = config.workers, random.Random(seed), status == "diverged"
    run = RunFolder(folder)
    run.fill(config, COMMAND)
    if foreign:
        write(folder / "config.json", plan)
    environment = json.loads((folder / "environment.json").read_text())
    assert MACHINE.keys() <= environment.keys(), "what a run no longer writes down"
    run.write("environment.json", environment | MACHINE)
    for worker in range(workers):
        file = MetricsFile(folder, worker, 0)
        for line in worker_lines(worker, workers, steps, sent, seconds, top, diverged, evaluate, noise):
            file.write(line)
        file.close()
    if not summary:
        (folder / "summary.json").unlink()
        return folder
    edges = ring(workers) if edges is None else edges
    ways = edges if directed else edges + [[j, i] for i, j in edges]
    each = sent * workers / len(ways)
    total = Summary(
        status=status,
        error=error,
        task=plan["task"],
        metric="accuracy",
        better="higher",
        workers=workers,
        parameters=17226,
        algorithm=plan["algorithm"],
        compressor=plan["compressor"],
        topology=plan["topology"],
        gamma=0.0379 if plan["compressor"] else None,
        steps=steps,
        epochs=steps / 11,
        average={"accuracy": top, "test loss": 0.131},
        local_mean={"accuracy": top - 0.012, "test loss": 0.17},
        consensus_distance=0.1234,
        train_loss=0.034,
        bytes_sent=(sent,) * workers,
        bytes_evaluating=(2 * sent,) * workers,
        links=tuple(Link(i, j, round(each * (1 + uneven * noise.random()))) for i, j in ways),
        bytes_full=full,
        seconds=seconds,
        clock=clock,
        network=None if clock == "measured" else "10 Mbit/s, 20 ms",
        partition=Partition(plan["partition"], counts(workers, noise)),
        graph=Graph(tuple((i, j) for i, j in edges), directed=directed, gap=0.0976, diameter=4),
    )
    if diverged:
        lost = {"accuracy": None, "test loss": None}
        total = replace(total, average=lost, local_mean=lost, consensus_distance=None, train_loss=None)
    run.write("summary.json", total.to_json() | (changes or {}))
    return folder


def worker_lines(worker, workers, steps, sent, seconds, top, diverged, evaluate, noise):
    for step in range(1, steps + 1):
        t = step / steps
        at = {"step": step, "epoch": step / 11, "seconds": seconds * t, "bytes_sent": round(sent * t)}
        if step % 5 == 0:
            loss = 2.3 * math.exp(-6 * t) + 0.05 + 0.05 * noise.random() * math.exp(-2 * t)
            loss = 2.3 * math.exp(12 * t) if diverged else loss
            yield {"kind": "train", "loss": None if diverged and t > 0.9 else loss, "lr": 0.1, **at}
        if step % 11 == 0 and evaluate:
            value = top * (1 - math.exp(-7 * t)) + 0.01 * noise.random() * (1 - t)
            value = 0.1 if diverged else value
            line = {"kind": "evaluation", **at, "local": {"accuracy": value - 0.02, "test loss": 0.6}}
            if worker == 0:
                line |= {
                    "average": {"accuracy": value, "test loss": 1 - value},
                    "local_mean": {"accuracy": value - 0.012 - 0.1 * math.exp(-5 * t), "test loss": 0.6},
                    "consensus_distance": 0.12,
                }
            yield line


def counts(workers, noise, classes=10):
    table = []
    for _ in range(workers):
        weights = [noise.gammavariate(0.25, 1) for _ in range(classes)]
        table.append(tuple(round(150 * w / sum(weights)) for w in weights))
    return tuple(table)
