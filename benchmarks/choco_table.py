"""Table 1 of the CHOCO-SGD paper in small: algorithms beside compressors, accuracy beside bytes.

    python -m benchmarks.choco_table            everything, for hours; goes on where it was stopped
    python -m benchmarks.choco_table --write    only put together what has been computed

Every run is kept as one line of a cache (--cache), so that the study can be stopped and go on. The
learning rate of a row is the one of LR_GRID with the best result on seed 0.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import gossamer
from benchmarks.record import Lines, NotMeasuredError, found_gamma, raw_lines, write
from gossamer.runs import Config, simulate

LR_GRID = (0.01, 0.03, 0.1)
SEEDS = (0, 1, 2)
PARTITIONS = ("iid", "dirichlet:0.1")
LOSSY = ("dcd", "ecd", "choco", "deepsqueeze")
QUANTIZED = ("qsgd:8", "qsgd:4", "qsgd:2")
RANDOM = ("randomk:0.5", "randomk:0.1", "randomk:0.01")
OTHERS = ("topk:0.5", "topk:0.1", "topk:0.01", "sign", "lowrank:1", "lowrank:2", "lowrank:4")
EXACT = ("allreduce", "dpsgd", "powergossip:1", "powergossip:2", "powergossip:4")

Method = tuple[str, str | None]


@dataclass(frozen=True)
class Setting:
    """One table of the study: a task on a graph."""

    title: str
    config: Config
    methods: tuple[Method, ...]
    partitions: tuple[str, ...] = PARTITIONS


def methods() -> tuple[Method, ...]:
    """Return the rows of the whole table.

    As in the papers, DCD and ECD get the unbiased forms of random compressors, CHOCO and
    DeepSqueeze those that contract.
    """
    rows: list[Method] = [(name, None) for name in EXACT]
    for algorithm in LOSSY:
        unbiased = algorithm in ("dcd", "ecd")
        rows += [(algorithm, c if unbiased else f"{c}:contraction") for c in QUANTIZED]
        rows += [(algorithm, f"{c}:scaled" if unbiased else c) for c in RANDOM]
        rows += [(algorithm, c) for c in OTHERS]
    return tuple(rows)


MAIN: tuple[Method, ...] = (
    ("allreduce", None),
    ("dpsgd", None),
    ("powergossip:1", None),
    ("powergossip:2", None),
    ("dcd", "qsgd:8"),
    ("dcd", "topk:0.01"),
    ("ecd", "qsgd:8"),
    ("choco", "qsgd:4:contraction"),
    ("choco", "sign"),
    ("choco", "topk:0.01"),
    ("deepsqueeze", "sign"),
)
FASHION = Config(task="fashion", batch_size=64, epochs=2, schedule="step", checkpoint_every=0)
SETTINGS = {
    "mlp": Setting("MLP 784-128-64-10, ring of 8", FASHION, methods()),
    "cnn": Setting("CNN, ring of 8", replace(FASHION, model="cnn", epochs=1), MAIN),
    "social": Setting(
        "MLP, social graph of 32", replace(FASHION, workers=32, topology="social", epochs=4), MAIN
    ),
    "text": Setting(
        "GPT on bytes of Python's standard library, ring of 8",
        Config(task="text", model="gpt-tiny", batch_size=4, steps=300, schedule="step", checkpoint_every=0),
        MAIN,
        ("iid",),
    ),
}


@dataclass(frozen=True)
class Job:
    """One run; its key names its line in the cache."""

    setting: str
    partition: str
    method: Method
    seed: int
    lr: float

    @property
    def key(self) -> str:
        """Return the run's name."""
        return f"{self.setting}|{self.partition}|{self.method[0]} {self.method[1]}|{self.seed}|{self.lr}"

    def config(self, gamma: float | None) -> Config:
        """Return the settings of the run."""
        return replace(
            SETTINGS[self.setting].config,
            algorithm=self.method[0],
            compressor=self.method[1],
            gamma=gamma,
            partition=self.partition,
            seed=self.seed,
            lr=self.lr,
            evaluate_every=10**9,  # only at the end
        )


class Cache(Lines):
    """The runs so far."""

    def score(self, job: Job) -> float | None:
        """Return the average model's metric at the end of a run, or None if it diverged."""
        line = self.lines[job.key]
        value = line["average"] and line["average"][line["metric"]]
        return value if line["status"] == "finished" else None

    def best_lr(self, setting: str, partition: str, method: Method) -> float | None:
        """Return the best learning rate on seed 0, or None if it diverged with all."""
        scores = {lr: self.score(Job(setting, partition, method, 0, lr)) for lr in LR_GRID}
        finished = {lr: score for lr, score in scores.items() if score is not None}
        better = max if SETTINGS[setting].config.task == "fashion" else min  # accuracy, perplexity
        return better(finished, key=lambda lr: finished[lr]) if finished else None


def gamma_key(setting: str, method: Method) -> str:
    """Return the name under which the cache keeps a consensus step size."""
    config = SETTINGS[setting].config
    return f"gamma|{setting}|{config.topology} {config.workers}|{method[0]} {method[1]}"


def find_gamma(key: str, config: Config) -> dict[str, Any]:
    """Return the line for a consensus step size, searched as `gamma="auto"` does."""
    prepare()
    return {"key": key, "gamma": found_gamma(config)}


def one_run(key: str, config: Config) -> dict[str, Any]:
    """Return the line for one run."""
    prepare()
    with TemporaryDirectory() as folder:
        began = time.perf_counter()
        saved = simulate(config, Path(folder) / "run", command="benchmark").to_json()
        spent = time.perf_counter() - began
    kept = ("status", "metric", "average", "local_mean", "consensus_distance", "bytes_sent", "steps")
    return {"key": key, "wall": round(spent, 1), **{name: saved[name] for name in kept}}


def prepare() -> None:
    """Set a worker process up."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", gossamer.TheoryWarning)  # the table is about such combinations too


def compute(cache: Cache, tables: list[tuple[str, str]], processes: int) -> None:
    """Run what is missing: consensus step sizes, then learning rates on seed 0, then the other seeds."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        for stage in (_gammas, _grid, _seeds):
            work = [item for item in stage(cache, tables) if item[0] not in cache.lines]
            function = find_gamma if stage is _gammas else one_run
            futures = [pool.submit(function, key, config) for key, config in dict(work).items()]
            for done, future in enumerate(as_completed(futures), 1):
                line = future.result()
                cache.add(line)
                outcome = line.get("average") or line.get("status") or line["gamma"]
                print(f"{done}/{len(futures)} {line['key']} {outcome}", flush=True)


Work = Iterator[tuple[str, Config]]


def _gammas(cache: Cache, tables: list[tuple[str, str]]) -> Work:
    for setting, partition in tables:
        for method in SETTINGS[setting].methods:
            yield gamma_key(setting, method), Job(setting, partition, method, 0, 0.1).config(None)


def _grid(cache: Cache, tables: list[tuple[str, str]]) -> Work:
    for setting, partition in tables:
        for method in SETTINGS[setting].methods:
            yield from _runs(cache, [Job(setting, partition, method, 0, lr) for lr in LR_GRID])


def _seeds(cache: Cache, tables: list[tuple[str, str]]) -> Work:
    for setting, partition in tables:
        for method in SETTINGS[setting].methods:
            best = cache.best_lr(setting, partition, method)
            if best is not None:
                yield from _runs(cache, [Job(setting, partition, method, seed, best) for seed in SEEDS])


def _runs(cache: Cache, jobs: list[Job]) -> Work:
    for job in jobs:
        yield job.key, job.config(cache.lines[gamma_key(job.setting, job.method)]["gamma"])


def table(cache: Cache, setting: str, partition: str) -> dict[str, Any]:
    """Return a table: what was trained, and a row a method."""
    return {
        "setting": SETTINGS[setting].title,
        "partition": partition,
        "config": json.loads(SETTINGS[setting].config.to_json()),
        "rows": [row(cache, setting, partition, method) for method in SETTINGS[setting].methods],
    }


def row(cache: Cache, setting: str, partition: str, method: Method) -> dict[str, Any]:
    """Return a row of a table."""
    first = Job(setting, partition, method, 0, LR_GRID[0])
    best = cache.best_lr(setting, partition, method)
    found = {
        "algorithm": method[0],
        "compressor": method[1],
        "gamma": cache.lines[gamma_key(setting, method)]["gamma"],
        "lr": best,
        "bytes a worker and step": _bytes(cache.lines[first.key]),
    }
    if best is None:
        return found | {"scores": [], "mean": None}
    jobs = [Job(setting, partition, method, seed, best) for seed in SEEDS]
    scores = [cache.score(job) for job in jobs]
    sound = [job for job, score in zip(jobs, scores, strict=True) if score is not None]
    lines = [cache.lines[job.key] for job in sound]
    return found | {
        "scores": scores,
        "mean": statistics.mean(score for score in scores if score is not None),
        "spread": statistics.pstdev(score for score in scores if score is not None),
        "bytes a worker and step": _bytes(lines[0]),
    }


def _bytes(line: dict[str, Any]) -> int | None:
    sent, steps = line["bytes_sent"], line["steps"]
    return round(sum(sent) / len(sent) / steps) if steps else None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cache", type=Path, default=raw_lines("choco_table"))
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="compute nothing")
    arguments = parser.parse_args()
    prepare()
    cache = Cache("choco_table", arguments.cache)
    tables = [(name, partition) for name in arguments.settings for partition in SETTINGS[name].partitions]
    if not arguments.write:
        compute(cache, tables, arguments.processes)
    try:
        results = [table(cache, name, partition) for name, partition in tables]
    except NotMeasuredError as error:
        sys.exit(f"results are not written: {error}")
    print(write("choco_table", {"lr grid": LR_GRID, "seeds": SEEDS, "tables": results}, cache))


if __name__ == "__main__":
    main()
