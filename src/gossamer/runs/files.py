"""Files that are whole or absent, and lines that survive a kill."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` write a temporary file beside this one, flush it to the disk and rename it to this one."""
    part = path.with_name(f"{path.name}.part")
    try:
        write(part)
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # so that the rename is on the disk as well
    finally:
        os.close(folder)


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make a folder, and those that it is in; if the body fails and has left them empty, they go again."""
    new = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    with gone_if_empty(*new):
        yield


@contextmanager
def gone_if_empty(*folders: Path) -> Iterator[None]:
    """Remove folders, each before the one that it is in, if the body fails and has left them empty."""
    try:
        yield
    except BaseException:
        for folder in folders:
            with suppress(OSError):  # something is in it
                folder.rmdir()
        raise


def free_space(path: Path) -> str:
    """Return how much space is left where a path is, for error messages."""
    return f"{shutil.disk_usage(path).free / 1e6:.1f} MB left"


class MetricsFile:
    """A worker's lines, each written at once, so that a kill can cut short only the last."""

    def __init__(self, folder: Path, rank: int, step: int) -> None:
        """Open the file to resume after a step: later lines are dropped, since their steps are done again."""
        self._path = folder / "metrics" / f"worker-{rank}.jsonl"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        kept = [line for line in read_lines(self._path) if line["step"] <= step] if step else []
        text = "".join(json.dumps(line) + "\n" for line in kept)
        write_atomically(self._path, lambda part: part.write_text(text))
        self._file = self._path.open("a", buffering=1)

    def write(self, line: dict[str, Any]) -> None:
        """Add a line."""
        self._file.write(json.dumps(json_safe(line), allow_nan=False) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a metrics file."""
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        try:
            line = json.loads(text)
        except ValueError:
            continue  # a process was killed while it wrote this line
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            lines.append(line)
    return lines


def json_safe(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value with None in place of numbers that JSON does not know."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): json_safe(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_safe(v) for v in value]
    return value
