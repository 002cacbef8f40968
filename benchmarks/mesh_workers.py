"""What the benchmarks of the mesh share: keys and a peers file for workers, and their answers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gossamer
from benchmarks.record import ROOT
from gossamer._mesh.keys import Key, load_key, new_key
from gossamer._mesh.peers import Peer, Peers, read_peers, write_peers
from gossamer._mesh.transport import MeshTransport
from gossamer._processes import Place, WorkerCommands

PATIENCE = 600.0  # seconds until workers must have ended


@dataclass(frozen=True)
class Invitation:
    """A folder with the keys of all workers and their peers file, as people make them."""

    folder: Path

    @classmethod
    def write(cls, folder: Path, addresses: Sequence[str]) -> Invitation:
        """Make a key for every address, and the peers file."""
        new = cls(folder)
        for i in range(len(addresses)):
            new_key(f"w{i}", folder)
        peers = (Peer(i, f"w{i}", address, new.key(i).public) for i, address in enumerate(addresses))
        write_peers(folder / "peers.toml", Peers(tuple(peers)))
        return new

    @property
    def peers(self) -> Peers:
        """The peers file."""
        return read_peers(self.folder / "peers.toml")

    def key(self, rank: int) -> Key:
        """Return a worker's key pair."""
        return load_key(f"w{rank}", self.folder)

    def join(self, rank: int, **options: Any) -> MeshTransport:  # noqa: ANN401 - they are those of mesh
        """Return this worker's end of the mesh."""
        return gossamer.mesh(self.peers.all[rank].address, self.peers, self.key(rank), **options)


def ask(place: Place, module: str, *arguments: str) -> list[Any]:
    """Run `python -m MODULE ARGUMENTS` as every worker, and return the line of JSON that each prints."""
    command = [sys.executable, "-m", module, *arguments]
    workers = WorkerCommands(place, command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        code = workers.wait(PATIENCE)
        if code != 0:
            raise SystemExit(f"{' '.join(command)}: {'no end' if code is None else f'exit code {code}'}")
        return [json.loads(worker.stdout.read()) for worker in workers.processes if worker.stdout]
    finally:
        workers.kill()
