"""The peers file: who may take part, where they are reached, and by which key each is known.

    [[peer]]
    name = "alice"
    address = "198.51.100.7:7000"   # or a DNS name, or [IPv6]:port
    key = "…"                       # 64 hex digits: gossamer keys show alice
    revoked = true                  # if she is admitted no longer; her entry stays

All have the same file. A peer's number is its place in it, so entries are added at the end and never removed.
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any

from gossamer._mesh.keys import check_name, is_public_key
from gossamer._suggest import located, unknown_name
from gossamer.network.tables import flag, read_table

NEEDED = ("name", "address", "key")
FIELDS = (*NEEDED, "revoked")
PORT = re.compile(r"[1-9][0-9]{0,4}")
LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")


@dataclass(frozen=True)
class Peer:
    """One who may take part: its place in the file, and what the file says of it."""

    id: int
    name: str
    address: str
    key: str
    revoked: bool = False


@dataclass(frozen=True)
class Peers:
    """All of a peers file, in its order; those that were revoked keep their places."""

    all: tuple[Peer, ...]

    def by_key(self, key: str) -> Peer | None:
        """Return the peer with a public key, also if it was revoked; None for a stranger's."""
        return self._of_keys.get(key)

    def by_name(self, name: str) -> Peer:
        """Return the peer of a name, also if it was revoked."""
        for peer in self.all:
            if peer.name == name:
                return peer
        raise unknown_name("peer", name, (peer.name for peer in self.all))

    def admitted(self) -> frozenset[str]:
        """Return the public keys of those that were not revoked."""
        return frozenset(peer.key for peer in self.all if not peer.revoked)

    def digest(self) -> str:
        """Identify who has which number, so that peers can compare their files.

        An address may change, and a peer may be revoked, without a new digest.
        """
        content = "".join(f"{peer.id} {peer.key}\n" for peer in self.all)
        return hashlib.sha256(content.encode()).hexdigest()

    @cached_property
    def _of_keys(self) -> dict[str, Peer]:
        return {peer.key: peer for peer in self.all}


def read_peers(path: Path) -> Peers:
    """Read a peers file, or say in one line what to change in it."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise ValueError(f"there is no peers file {path}: is the path right?") from None
    with located(str(path)):
        return peers_of(_tables(content))


def write_peers(path: Path, peers: Peers) -> None:
    """Write a peers file; one that is read meanwhile is the old or the new one, never a part."""
    text = "\n".join(
        f'[[peer]]\nname = "{peer.name}"\naddress = "{peer.address}"\nkey = "{peer.key}"\n'
        + "revoked = true\n" * peer.revoked
        for peer in peers.all
    )
    if peers_of(_tables(text.encode())) != peers:
        raise ValueError("these peers would be read back as others: number them 0, 1, ... in their order")
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and the port of HOST:PORT, [IPv6]:PORT included; one host is always written alike."""
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f"the address {text!r} must be HOST:PORT, such as 198.51.100.7:7000")
    if not PORT.fullmatch(port) or int(port) > 65535:
        raise ValueError(
            f"the address {text!r} needs a port from 1 to 65535 at its end, as 198.51.100.7:7000"
        )
    if host.startswith("[") and host.endswith("]"):
        return _ipv6(text, host[1:-1]), int(port)
    if ":" in host:
        raise ValueError(
            f"the address {text!r} has colons in its host: write [IPv6]:PORT, as [2001:db8::7]:7000"
        )
    return _ipv4_or_name(text, host), int(port)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine under a name that no other machine can use."""
    if host.lower() == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    # Versions of Python disagree on ::ffff:127.0.0.1; here it never counts.
    return address == IPv6Address("::1") or (isinstance(address, IPv4Address) and address.is_loopback)


def _ipv6(text: str, host: str) -> str:
    try:
        address = IPv6Address(host)
    except AddressValueError:
        raise ValueError(f"the address {text!r} has no IPv6 address in its brackets") from None
    if address.scope_id is not None:
        raise ValueError(
            f"the address {text!r} names an interface of one machine: leave out the % and what follows"
        )
    return str(address)


def _ipv4_or_name(text: str, host: str) -> str:
    labels = host.split(".")
    if NUMBER.fullmatch(labels[-1]):  # the resolver would take it as an IPv4 address, in forms nobody expects
        try:
            return str(IPv4Address(host))
        except AddressValueError:
            raise ValueError(
                f"the address {text!r} has no IPv4 address: write four numbers from 0 to 255"
            ) from None
    if len(host) > 253 or not all(LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"the address {text!r} has no host: write an IPv4 address, a DNS name or [IPv6]")
    return host.lower()


def _tables(content: bytes) -> dict[str, Any]:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"this is not text in UTF-8, at line {line}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        end = f"at line {text.count(chr(10)) + 1}, the end of the file"
        raise ValueError(f"this is not TOML: {str(error).replace('at end of document', end)}") from None


def peers_of(tables: dict[str, Any]) -> Peers:
    """Return the peers of a file that was read, or of what somebody tells, checked field by field."""
    for name in tables:
        if name != "peer":
            raise ValueError(f"{name!r} has no place here: a peers file has nothing but [[peer]] tables")
    entries = tables.get("peer", [])
    if not isinstance(entries, list):
        raise ValueError("peer: write each as its own table under [[peer]], with two brackets")
    if not entries:
        raise ValueError("there are no peers in it: write a [[peer]] with name, address and key for each")
    peers = []
    for k, entry in enumerate(entries):
        with located(f"[[peer]] {k + 1}"):
            peers.append(_peer(k, entry))
    _check_different("name", ((peer, peer.name) for peer in peers))
    _check_different("key", ((peer, peer.key) for peer in peers))
    # Who was revoked has no address any more: the same person may come back with a new key.
    _check_different("address", ((peer, parse_address(peer.address)) for peer in peers if not peer.revoked))
    return Peers(tuple(peers))


def _peer(place: int, entry: object) -> Peer:
    table = read_table("a peer", entry)
    for name in table:
        if name not in FIELDS:
            raise unknown_name("field", name, FIELDS)
    for name in NEEDED:
        if name not in table:
            raise ValueError(f"it has no {name}: each [[peer]] needs {', '.join(NEEDED)}")
    name, address, key = (table[field] for field in NEEDED)
    check_name(name)
    if not isinstance(address, str):
        raise ValueError(f'address = {address!r}: write it in quotes, as "198.51.100.7:7000"')
    parse_address(address)
    if not is_public_key(key):
        found = f"{len(key)} characters" if isinstance(key, str) else "no text"
        raise ValueError(
            f"key: a public key has 64 digits of 0-9 and a-f, and this is {found}; "
            f"gossamer keys show {name} prints it"
        )
    return Peer(place, name, address, key, flag(table, "revoked", default=False))


def _check_different(what: str, values: Iterable[tuple[Peer, Hashable]]) -> None:
    seen: dict[Hashable, Peer] = {}
    for peer, value in values:
        other = seen.setdefault(value, peer)
        if other is not peer:
            both = f"{other.id + 1} ({other.name}) and {peer.id + 1} ({peer.name})"
            raise ValueError(f"[[peer]] {both} have the same {what}: give each its own")
