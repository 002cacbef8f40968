"""Results as JSON beside the command, commit and versions that made them, one row a line."""

from __future__ import annotations

import hashlib
import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import gossamer
from gossamer.runs import Config

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
FIGURES = ROOT / "docs" / "figures"
HEADER = 2  # levels that are opened if they hold more than values: the record, and its results


class NotMeasuredError(LookupError):
    """A line that results need has not been computed here; says what to do."""


class Lines:
    """What has been computed, one JSON line each: long studies can be stopped and go on."""

    def __init__(self, name: str, path: Path) -> None:
        self.path, self._commit = path, commit()
        self.lines = _ByKey(name, path)

    def add(self, line: dict[str, Any]) -> None:
        """Keep a line, on the disk too, with the commit that this process was started from."""
        self.lines[line["key"]] = line = {**line, "commit": self._commit}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


class _ByKey(dict[str, dict[str, Any]]):
    """A file's lines; asking for one that is not there raises NotMeasuredError."""

    def __init__(self, name: str, path: Path) -> None:
        lines = path.read_text().splitlines() if path.is_file() else []
        super().__init__((renamed(line["key"]), line) for line in map(json.loads, lines))
        self._name, self._path = name, path

    def __missing__(self, key: str) -> dict[str, Any]:
        raise NotMeasuredError(f"{self._path} has no line {key!r}: {self._remedy()}")

    def _remedy(self) -> str:
        measure = f"measure it with python -m benchmarks.{self._name}"
        raw = read(self._name).get("raw lines", {})
        if "commit" not in raw:
            return measure
        back = f"mkdir -p {self._path.parent} && git show {raw['commit']}:{raw['path']} > {self._path}"
        return f"{measure}, or fetch the raw lines of the committed results: {back}"


def renamed(key: str) -> str:
    """Return a raw line's key by today's names: the history's lines call overlap 1 late, and 2 late by 2."""
    return key.replace(", late by 2", ", overlap 2").replace(", late", ", overlap 1")


def raw_lines(name: str) -> Path:
    """Return where a benchmark keeps what it has computed, unless told otherwise: not in the repository."""
    return ROOT / "runs" / "benchmarks" / f"{name}_runs.jsonl"


def found_gamma(config: Config) -> float | None:
    """Return the consensus step size that `gamma="auto"` finds; None where there is nothing to find."""
    algorithm = config.make_algorithm()
    if getattr(algorithm, "gamma", None) != "auto":
        return None
    shapes = [p.shape for p in config.make_task().model().parameters()]
    return gossamer.tune_gamma(algorithm, config.make_topology(), shapes=shapes)


def read(name: str) -> dict[str, Any]:
    """Return what is in docs/results/NAME.json; nothing where it has never been written."""
    path = RESULTS / f"{name}.json"
    record: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return record


def write(name: str, results: Any, cache: Lines | None = None) -> Path:  # noqa: ANN401 - whatever was found
    """Write docs/results/NAME.json and return its path."""
    record = {
        "command": " ".join(["python", "-m", f"benchmarks.{name}", *sys.argv[1:]]),
        "commit": commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": f"{platform.machine()}, {platform.system()}",
        **({"raw lines": _provenance(name, cache.path)} if cache else {}),
        "results": results,
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(one_row_a_line(record))
    return path


def _provenance(name: str, path: Path) -> dict[str, str]:
    """Return where the raw lines are: in the history, if they are those of the results so far."""
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    known: dict[str, str] = read(name).get("raw lines", {})
    if known.get("sha256") == digest:
        return known
    path = path.resolve()
    inside = path.is_relative_to(ROOT)
    return {"path": str(path.relative_to(ROOT)) if inside else path.name, "sha256": digest}


def one_row_a_line(record: Mapping[str, Any]) -> str:
    """Return a record as JSON: the fields of its header and every row of its results on lines of their own.

    A row is what holds a value itself and no list of further rows; whatever is around rows is opened.
    """
    return _lines(json.loads(json.dumps(record)), 0) + "\n"  # tuples become lists, keys become text


def _lines(value: Any, depth: int) -> str:  # noqa: ANN401 - whatever JSON can hold
    if not isinstance(value, dict | list) or _is_row(value, depth):
        return json.dumps(value)
    if isinstance(value, dict):
        items, ends = [f"{json.dumps(k)}: {_lines(v, depth + 1)}" for k, v in value.items()], "{}"
    else:
        items, ends = [_lines(v, depth + 1) for v in value], "[]"
    inner = ",\n".join(" " * (depth + 1) + item for item in items)
    return f"{ends[0]}\n{inner}\n{' ' * depth}{ends[1]}"


def _is_row(value: dict[str, Any] | list[Any], depth: int) -> bool:
    items = list(value.values()) if isinstance(value, dict) else value
    inside = [item for item in items if isinstance(item, dict | list)]
    if depth < HEADER:
        return not inside
    rows = [item for item in inside if isinstance(item, list) and item and isinstance(item[0], dict)]
    return not items or (len(inside) < len(items) and not rows)


def commit() -> str:
    """Return the commit, with a + where the package's own files differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
        return done.stdout.strip()

    return git("rev-parse", "--short", "HEAD") + (
        "+" if git("status", "--porcelain", "src", "benchmarks") else ""
    )
