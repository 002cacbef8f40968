"""Run folders that look like those of `gossamer train`, with numbers made up by a formula."""

from __future__ import annotations

import json
import math
import random

FULL = 54_000_000


def write(path, value):
    path.write_text(json.dumps(value), encoding="utf-8")


def ring(n):
    return [[i, (i + 1) % n] for i in range(n)]


def config(**changes):
    settings = {
        "task": "digits",
        "model": "mlp",
        "data": None,
        "workers": 8,
        "topology": "ring",
        "algorithm": "choco",
        "compressor": "topk:0.01",
        "gamma": "auto",
        "every": 1,
        "order": "adapt-then-combine",
        "overlap": False,
        "epochs": 30,
        "steps": None,
        "batch_size": 16,
        "lr": 0.1,
        "lr_scale": True,
        "warmup": 2,
        "schedule": "cosine",
        "optimizer": "sgd",
        "momentum": 0.9,
        "weight_decay": 0.0001,
        "partition": "dirichlet:0.1",
        "seed": 0,
        "deadline": 60,
    }
    return settings | changes


def environment(command="gossamer train --task digits --workers 8 --algorithm choco --compressor topk:0.01"):
    return {
        "command": command,
        "gossamer": "0.2.0",
        "torch": "2.13.0",
        "numpy": "2.4.6",
        "python": "3.11.7",
        "platform": "Linux-6.1.0-x86_64-with-glibc2.36",
        "commit": "4dfa232",
        "cpus": 2,
        "started": "2026-11-16T05:10:00+00:00",
    }


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
    **settings,
):
    """Write a run whose accuracy climbs to `top`, and return its folder; `changes` go into the summary."""
    (folder / "metrics").mkdir(parents=True)
    plan = config(**settings)
    workers = plan["workers"]
    noise = random.Random(seed)
    write(folder / "config.json", plan)
    write(folder / "environment.json", environment())
    diverged = status == "diverged"
    for worker in range(workers):
        lines = list(worker_lines(worker, workers, steps, sent, seconds, top, diverged, evaluate, noise))
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / "metrics" / f"worker-{worker}.jsonl").write_text(text, encoding="utf-8")
    if summary:
        edges = ring(workers) if edges is None else edges
        ways = edges if directed else edges + [[j, i] for i, j in edges]
        each = sent * workers / len(ways)
        links = [[i, j, round(each * (1 + uneven * noise.random()))] for i, j in ways]
        total = {
            "status": status,
            "error": error,
            "task": plan["task"],
            "metric": "accuracy",
            "better": "higher",
            "steps": steps,
            "epochs": steps / 11,
            "workers": workers,
            "parameters": 17226,
            "algorithm": plan["algorithm"],
            "compressor": plan["compressor"],
            "topology": plan["topology"],
            "gamma": 0.0379 if plan["compressor"] else None,
            "average": {"accuracy": None if diverged else top, "test loss": None if diverged else 0.131},
            "local_mean": {"accuracy": None if diverged else top - 0.012, "test loss": 0.17},
            "consensus_distance": None if diverged else 0.1234,
            "train_loss": None if diverged else 0.034,
            "bytes_sent": [sent] * workers,
            "links": links,
            "bytes_full": full,
            "seconds": seconds,
            "clock": clock,
            "network": None if clock == "measured" else "10 Mbit/s, 20 ms",
            "partition": {"kind": plan["partition"], "counts": counts(workers, noise)},
            "graph": {"edges": edges, "directed": directed, "varying": False, "gap": 0.0976, "diameter": 4},
        }
        write(folder / "summary.json", total | (changes or {}))
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
        table.append([round(150 * w / sum(weights)) for w in weights])
    return table
