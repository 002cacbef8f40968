"""A run is a folder: what is in it, and how it is written.

config.json              all settings; enough to start the run again
environment.json         command, versions, machine
metrics/worker-3.jsonl   one line per log point and evaluation of a worker
checkpoints/             see gossamer.runs.training.checkpoint
logs/worker-3.log        what a worker printed, where the run was started as one command
summary.json             the result; its fields are described in docs/runs.md
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Any

from gossamer.runs.config import Config, read_config
from gossamer.runs.files import gone_if_empty, json_safe, made, write_atomically
from gossamer.runs.summary import Summary
from gossamer.runs.training.checkpoint import Checkpoints

FOLDERS = ("metrics", "checkpoints", "logs")
LEFT_BY_A_START = frozenset({"lock", "peers.toml"})  # that was killed while it waited for the others
PACKAGES = ("gossamer", "torch", "numpy", "networkx", "safetensors")


class RunFolder:
    """Paths of a run, and the ways to fill them.

    Args:
        path: The run's folder, which need not exist yet.

    Example:
        >>> from pathlib import Path
        >>> from gossamer.runs import RunFolder
        >>> RunFolder(Path("no-such-folder")).exists()
        False
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints")

    def create(self, config: Config, command: str) -> None:
        """Make the folder of a new run, unless it holds another one."""
        self._require_free()
        self.fill(config, command)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Make and lock the folder of a run that is to begin; without a `fill` by the end, it goes again.

        So a worker that has waited for the others in vain leaves nothing that would be in its own way.
        """
        self._require_free(but=LEFT_BY_A_START)
        with made(self.path):
            before = {path.name for path in self.path.iterdir()}
            with self.held():
                try:
                    yield
                finally:
                    if not self.exists():
                        self._clear(before)

    def _require_free(self, but: frozenset[str] = frozenset()) -> None:
        """Raise a FileExistsError if something is in the folder, but for files of these names and a lock."""
        if self.exists():
            raise FileExistsError(
                f"{self.path} already holds a run ({self.config().label}, {self.status()}); resume it "
                f"with --resume {shlex.quote(str(self.path))}, or choose another folder with --out"
            )
        if not self.path.exists():
            return
        names = {path.name for path in self.path.iterdir()} if self.path.is_dir() else {"no folder"}
        if names and not ("lock" in names and names <= but):
            raise FileExistsError(f"{self.path} exists and is not a run; choose another folder with --out")

    def _clear(self, kept: set[str]) -> None:
        """Remove what a start has made, but for what was there before it."""
        files = {*LEFT_BY_A_START, "environment.json", "summary.json"}
        for path in [path for path in self.path.iterdir() if path.name not in kept]:
            with suppress(OSError):
                if path.name in FOLDERS:
                    path.rmdir()
                elif path.name in files:
                    path.unlink()

    def fill(self, config: Config, command: str) -> None:
        """Write what is known at the start, unless it exists: machines may or may not share the folder."""
        for name in FOLDERS:
            (self.path / name).mkdir(parents=True, exist_ok=True)
        if not self.exists():
            self.write("environment.json", environment(command))
            self.write_summary(Summary())
            self.write_config(config)

    def write_config(self, config: Config) -> None:
        """Write the settings."""
        write_atomically(self.path / "config.json", lambda part: part.write_text(config.to_json()))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder, so that no other process runs the same run."""
        import fcntl  # noqa: PLC0415 - folders can also be read on systems that have none

        with (self.path / "lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"another process works on the run in {self.path}; wait for it, or stop it first"
                ) from None
            yield

    def exists(self) -> bool:
        """Return whether there is a run in the folder."""
        return (self.path / "config.json").is_file()

    def config(self) -> Config:
        """Return the settings of the run that is in the folder."""
        path = self.path / "config.json"
        if not path.is_file():
            raise FileNotFoundError(f"there is no run in {self.path}: it has no config.json")
        return read_config(path)

    def summary(self) -> Summary:
        """Return what is known of the result so far."""
        path = self.path / "summary.json"
        return Summary.from_json(json.loads(path.read_text())) if path.is_file() else Summary()

    def status(self) -> str:
        """Return how the run ended, or "running" if it has not, or was killed."""
        return self.summary().status

    def write_summary(self, summary: Summary) -> None:
        """Write what is known of the result."""
        self.write("summary.json", summary.to_json())

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Write one of the JSON files, whole or not at all."""
        text = json.dumps(json_safe(content), indent=2, allow_nan=False) + "\n"
        write_atomically(self.path / name, lambda part: part.write_text(text))

    def log_path(self, rank: int) -> Path:
        """Return where a worker's output goes."""
        return self.path / "logs" / f"worker-{rank}.log"


def environment(command: str) -> dict[str, Any]:
    """Return what a reader needs to repeat the run elsewhere."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        "command": command,
        **versions,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "commit": _commit(),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _commit() -> str | None:
    """Return the commit of the current folder, if it has one."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


@contextmanager
def next_folder(base: Path, name: str) -> Iterator[Path]:
    """Make and yield a new folder; if the body fails before anything is in it, the number is free again."""
    with made(base):
        folder = new_folder(base, name)
        with gone_if_empty(folder):
            yield folder


def new_folder(base: Path, name: str) -> Path:
    """Make and return the first of base/name-1, base/name-2, ... that does not exist."""
    for number in count(1):
        try:
            (base / f"{name}-{number}").mkdir(parents=True)
        except FileExistsError:
            continue
        return base / f"{name}-{number}"
    raise AssertionError("there is always a next number")
