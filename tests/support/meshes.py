"""Meshes for tests: peers on this machine, and workers that train over them."""

from __future__ import annotations

import hashlib
from collections import deque
from typing import Any

import zmq

import gossamer
from gossamer._mesh.keys import Key, from_z85
from gossamer._mesh.peers import Peer, Peers
from gossamer._mesh.transport import MeshTransport
from gossamer.runs.processes.ports import HeldPorts

HELD: deque[HeldPorts] = deque(maxlen=200)  # of this session: no other is given one before a test is over


def new_keys(n: int) -> list[Key]:
    """Return key pairs that are in no file."""
    return [Key(f"w{i}", *(from_z85(part) for part in zmq.curve_keypair())) for i in range(n)]


def made_up_keys(n: int) -> list[Key]:
    """Return names for workers that do not encrypt."""
    return [Key(f"w{i}", hashlib.sha256(f"{i}".encode()).hexdigest(), "") for i in range(n)]


def free_addresses(n: int) -> list[str]:
    """Return addresses on this machine that are free, and stay so for the length of a test."""
    HELD.append(HeldPorts(n))
    return HELD[-1].addresses


def peers_of(keys: list[Key]) -> Peers:
    """Return peers on this machine."""
    pairs = enumerate(zip(keys, free_addresses(len(keys)), strict=True))
    return Peers(tuple(Peer(i, key.name, where, key.public) for i, (key, where) in pairs))


def join(peers: Peers, rank: int, key: Key | None = None, **options: Any) -> MeshTransport:
    """Return this worker's end of the mesh."""
    return gossamer.mesh(peers.all[rank].address, peers, key, **options)
