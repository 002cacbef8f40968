"""Results as JSON beside the command, commit and versions that made them."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import gossamer
from gossamer.runs import Config

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
FIGURES = ROOT / "docs" / "figures"


class Lines:
    """What has been computed, one JSON line each: long studies can be stopped and go on."""

    def __init__(self, path: Path) -> None:
        self._path, self._commit = path, commit()
        lines = path.read_text().splitlines() if path.is_file() else []
        self.lines: dict[str, dict[str, Any]] = {line["key"]: line for line in map(json.loads, lines)}

    def add(self, line: dict[str, Any]) -> None:
        """Keep a line, on the disk too, with the commit that this process was started from."""
        self.lines[line["key"]] = line = {**line, "commit": self._commit}
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def found_gamma(config: Config) -> float | None:
    """Return the consensus step size that `gamma="auto"` finds; None where there is nothing to find."""
    algorithm = config.make_algorithm()
    if getattr(algorithm, "gamma", None) != "auto":
        return None
    shapes = [p.shape for p in config.make_task().model().parameters()]
    return gossamer.tune_gamma(algorithm, config.make_topology(), shapes=shapes)


def write(name: str, results: Any) -> Path:  # noqa: ANN401 - whatever a benchmark found
    """Write docs/results/NAME.json and return its path."""
    record = {
        "command": " ".join(["python", "-m", f"benchmarks.{name}", *sys.argv[1:]]),
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {platform.system()}",
        "results": results,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def commit() -> str:
    """Return the commit, with a + where the package's own files differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
        return done.stdout.strip()

    return git("rev-parse", "--short", "HEAD") + (
        "+" if git("status", "--porcelain", "src", "benchmarks") else ""
    )
