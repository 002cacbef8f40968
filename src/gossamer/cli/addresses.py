"""Where a worker of a mesh listens, and under which address the others look for it: the doctor's checks."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path

from gossamer._mesh.peers import Peer, Peers, is_loopback, parse_address
from gossamer.cli.exchange import Finding

IPV6 = Path("/proc/net/if_inet6")  # Linux: an address, four numbers and an interface in each line
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - to be recognized, not to be bound


def with_ipv6(addresses: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the addresses of every interface: the IPv4 address that is known, and all of IPv6 on Linux."""
    found = {name: [address] if address else [] for name, address in addresses.items()}
    lines = IPV6.read_text(encoding="ascii").splitlines() if IPV6.exists() else []
    for digits, *_, name in map(str.split, lines):
        found.setdefault(name, []).append(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)))
    return found


def check_listen(host: str, port: int, everybody: Peers, addresses: Mapping[str, Sequence[str]]) -> Finding:
    """Say which address will be bound, and to which interface it belongs."""
    place = f"port {port} of {_shown(host)}"
    outside = [peer.name for peer in everybody.all if not is_loopback(parse_address(peer.address)[0])]
    if is_loopback(host) and outside:
        text = f"{place}, which only this machine can reach, while {outside[0]} is elsewhere"
        return Finding("problem", "listen", text, f"listen on all interfaces: --listen 0.0.0.0:{port}")
    if host in EVERYWHERE:
        named = ", ".join(f"{name} {' '.join(own) or '(no address)'}" for name, own in addresses.items())
        return Finding("ok", "listen", f"{place}, which is all interfaces: {named}")
    named = host if host in addresses else _interface(host, addresses)
    if named:
        return Finding("ok", "listen", f"{place}, which is interface {named}")
    if _is_here(host):
        return Finding("ok", "listen", f"{place}, which is an address of this machine")
    remedy = f"listen on an address that it has, or on all: --listen 0.0.0.0:{port}"
    return Finding("problem", "listen", f"{place}, which is no address of this machine", remedy)


def check_seen(
    me: Peer, host: str, port: int, everybody: Peers, addresses: Mapping[str, Sequence[str]]
) -> list[Finding]:
    """Say where others look for this worker, and whether that can be here."""
    wanted, wanted_port = parse_address(me.address)
    found = _resolved(wanted)
    seen = f"the peers file says that {me.name} is at {me.address}"
    if not found:
        return [
            Finding("problem", "seen as", f"{seen}: that name does not resolve", "correct it, or your DNS")
        ]
    own = [address for each in addresses.values() for address in each if not is_loopback(address)]
    here = any(map(_is_here, found))
    if not here and own and all(map(_is_private, own)) and not all(map(_is_private, found)):
        text = f"{seen}, which is a router's address: this machine has only private ones ({', '.join(own)})"
        return [
            Finding("ok", "seen as", text, f"the router must forward TCP port {wanted_port} to {port} here")
        ]
    if not here:
        text = f"{seen}, and that is no address of this machine, which has {', '.join(own) or 'none'}"
        remedy = "correct it in everybody's peers file, unless a router forwards that port to here"
        return [Finding("warning", "seen as", text, remedy)]
    if wanted_port != port:
        text = f"{seen}, but it listens on port {port}"
        return [
            Finding("problem", "seen as", text, f"listen on port {wanted_port}, or correct the peers file")
        ]
    if host not in (*EVERYWHERE, *found, *addresses) and not is_loopback(host):
        text, remedy = f"{seen}, but it listens on {_shown(host)} only", f"--listen 0.0.0.0:{port}"
        return [Finding("problem", "seen as", text, remedy)]
    return [Finding("ok", "seen as", f"{seen}: an address of this machine"), *_lonely(me, found, everybody)]


def _lonely(me: Peer, found: Sequence[str], everybody: Peers) -> list[Finding]:
    """Warn of a private address where others have public ones."""
    others = [peer for peer in everybody.all if peer.id != me.id and not peer.revoked]
    public = [peer.name for peer in others if _is_public(parse_address(peer.address)[0])]
    if not public or not all(map(_is_private, found)):
        return []
    text = f"{me.address} is a private address, while {', '.join(public[:3])} can be anywhere"
    return [
        Finding("warning", "seen as", text, "others need this machine's public address, or all need a VPN")
    ]


def _interface(host: str, addresses: Mapping[str, Sequence[str]]) -> str:
    found = set(_resolved(host))
    return ", ".join(f"{name} ({' '.join(own)})" for name, own in addresses.items() if found & set(own))


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _resolved(host: str) -> list[str]:
    try:
        return sorted({str(info[4][0]) for info in socket.getaddrinfo(host, None)})
    except OSError:
        return []


def _is_here(address: str) -> bool:
    """Return whether this machine has an address: only then can it be bound."""
    try:
        kind, *_, place = socket.getaddrinfo(address, 0, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind, socket.SOCK_DGRAM) as probe:
            probe.bind(place)
    except OSError:
        return False
    return True


def _is_private(address: str) -> bool:
    return not ip_address(address).is_global


def _is_public(host: str) -> bool:
    try:
        return ip_address(host).is_global
    except ValueError:  # a name: it may be anything
        return False
