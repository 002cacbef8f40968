"""Do something for many seeds in several processes, and say which of them failed."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.record import write

CHUNK = 25  # seeds that a process does at a time


@dataclass
class Outcome:
    """What has happened, which seeds failed and why, and the seconds of computing on one core."""

    counts: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, other: Outcome) -> None:
        """Add what another process has found."""
        self.counts += other.counts
        self.failed |= other.failed
        self.seconds += other.seconds


def for_all(what: Callable[[int], Counter[str]], seeds: range, jobs: int) -> Outcome:
    """Do it for all seeds; print at once which fail."""
    chunks = [seeds[i : i + CHUNK] for i in range(0, len(seeds), CHUNK)]
    whole = Outcome()
    with ProcessPoolExecutor(jobs) as pool:
        for part in pool.map(partial(_for_some, what), chunks):
            whole.add(part)
            for seed, why in part.failed.items():
                print(f"seed {seed}: {why}", flush=True)
    return whole


def _for_some(what: Callable[[int], Counter[str]], seeds: range) -> Outcome:
    outcome, began = Outcome(), time.process_time()
    for seed in seeds:
        try:
            outcome.counts += what(seed)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            outcome.failed[str(seed)] = f"{type(error).__name__}: {error}"
    outcome.seconds = time.process_time() - began
    return outcome


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return what the commands have in common."""
    found = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--jobs", type=int, default=1, help="processes")
    found.add_argument("--write", action="store_true", help="write the results into docs/results")
    return found


def tell(name: str, results: Mapping[str, Any], failed: Mapping[str, str], *, written: bool) -> None:
    """Print the results, write them if that is wanted, and end with an error if any seed failed."""
    for what, value in results.items():
        print(f"{what}: {value}")
    if written:
        write(name, results)
    if failed:
        sys.exit(f"{len(failed)} seeds failed")
