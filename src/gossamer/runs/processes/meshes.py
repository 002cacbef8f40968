"""Where the workers of a run over a mesh are, and who they are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gossamer._doors.mesh import ask_to_join, mesh
from gossamer._mesh.keys import Key, from_z85
from gossamer._mesh.needs import require_zmq
from gossamer._mesh.peers import Peer, Peers, read_peers
from gossamer._mesh.roster import Roster, founded_now
from gossamer._mesh.transport import MeshTransport
from gossamer.lab.namespaces import NAMESPACES, SUBNET
from gossamer.runs.processes.ports import HeldPorts

PORT = 7000  # of every worker in a lab, where each has an address of its own


@dataclass(frozen=True)
class Place:
    """One worker's place in a mesh over many machines, as people give it.

    Args:
        listen: Its address and port.
        peers: The peers file.
        key: Its key pair, by name or file.
        plain: Neither encrypt nor authenticate.
        contacts: In place of a peers file, running members as "KEY@HOST:PORT": the first that answers tells
            who the others are. The run's folder then gets a peers.toml.

    Example:
        >>> from pathlib import Path
        >>> from gossamer.runs import Place
        >>> Place("0.0.0.0:7000", Path("peers.toml"), key="alice").listen
        '0.0.0.0:7000'
    """

    listen: str
    peers: Path | None = None
    key: str | None = None
    plain: bool = False
    contacts: tuple[str, ...] = ()

    @cached_property
    def roster(self) -> Roster:
        """Who there is, and how many workers the run has begun with; a member is asked once."""
        if self.peers is not None and self.contacts:
            raise ValueError("a worker has a peers file, or asks a member for it: not both")
        if self.contacts:
            return ask_to_join(self.contacts, self.key, self.listen, plain=self.plain)
        if self.peers is None:
            raise ValueError("a worker needs a peers file, or a member to ask for it")
        return founded_now(read_peers(self.peers))

    def join(self, run: str, deadline: float, folder: Path) -> MeshTransport:
        """Return the worker's end of the mesh; what a member has told of the others goes into this folder."""
        roster, path = (self.roster, folder / "peers.toml") if self.contacts else ((), self.peers)
        return mesh(self.listen, path, self.key, join=roster, run=run, plain=self.plain, deadline=deadline)


class LocalMesh:
    """All workers of a run, on this machine or in a lab, with keys that only they ever have."""

    def __init__(self, n: int) -> None:
        zmq = require_zmq()
        self._keys = [Key(f"worker-{i}", *map(from_z85, zmq.curve_keypair())) for i in range(n)]
        self._in_lab = NAMESPACES in os.environ
        self._held = HeldPorts(0 if self._in_lab else n)
        addresses = self._held.addresses or _lab_addresses(n)
        pairs = enumerate(zip(self._keys, addresses, strict=True))
        self._peers = Peers(tuple(Peer(i, key.name, where, key.public) for i, (key, where) in pairs))

    def join(self, rank: int, deadline: float) -> MeshTransport:
        """Return a worker's end of the mesh; encrypted in a lab, as between machines."""
        key = self._keys[rank] if self._in_lab else None
        return mesh(self._peers.all[rank].address, self._peers, key, deadline=deadline)


def _lab_addresses(n: int) -> list[str]:
    return [f"{'.'.join(map(str, SUBNET))}.{i + 1}:{PORT}" for i in range(n)]
