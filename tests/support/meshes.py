"""Meshes for tests: peers on this machine, and workers that train over them."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import zmq

import gossamer
from gossamer._mesh.keys import Key, from_z85
from gossamer._mesh.peers import Peer, Peers
from gossamer._mesh.transport import MeshTransport
from gossamer.runs.processes.meshes import PORTS, free_addresses


def new_keys(n: int) -> list[Key]:
    """Return key pairs that are in no file."""
    return [Key(f"w{i}", *(from_z85(part) for part in zmq.curve_keypair())) for i in range(n)]


def made_up_keys(n: int) -> list[Key]:
    """Return names for workers that do not encrypt."""
    return [Key(f"w{i}", hashlib.sha256(f"{i}".encode()).hexdigest(), "") for i in range(n)]


def peers_of(keys: list[Key]) -> Peers:
    """Return peers on ports of this machine that are free and stay so; other sessions have others."""
    session = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    addresses = free_addresses(len(keys), PORTS[session % 8 :: 8])
    pairs = enumerate(zip(keys, addresses, strict=True))
    return Peers(tuple(Peer(i, key.name, where, key.public) for i, (key, where) in pairs))


def join(peers: Peers, rank: int, key: Key | None = None, **options: Any) -> MeshTransport:
    """Return this worker's end of the mesh."""
    return gossamer.mesh(peers.all[rank].address, peers, key, **options)
