"""The mesh as people make it: where to listen, who else there is, and with which key."""

from __future__ import annotations

import hashlib
import logging
import math
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gossamer._mesh.admission import Admission
from gossamer._mesh.contacts import Timing
from gossamer._mesh.joining import learn, parse_door
from gossamer._mesh.keys import Key, load_key
from gossamer._mesh.members import Member, Status
from gossamer._mesh.patience import Patience
from gossamer._mesh.peers import Peer, Peers, is_loopback, parse_address, read_peers, write_peers
from gossamer._mesh.protocol import Protocol
from gossamer._mesh.roster import Roster, founded_now
from gossamer._mesh.sockets import Listening, Sockets
from gossamer._mesh.transport import MeshTransport

log = logging.getLogger("gossamer")

BEAT = Timing().beat


def mesh(
    listen: str,
    peers: str | Path | Peers | None = None,
    key: str | Path | Key | None = None,
    *,
    join: Sequence[str] | Roster = (),
    run: str = "",
    plain: bool = False,
    connections: int = 1,
    wait: str | float = "all",
    silence: float = 5.0,
    deadline: float = 60.0,
) -> MeshTransport:
    """Join the workers of a peers file without a server, for `decentralize(..., transport=)`.

    A neighbour that is lost raises nothing: the others train on, and it may return.

    Args:
        listen: The address and port of this worker, such as "0.0.0.0:7000". It must be open to the others.
        peers: The peers file, the same for all: name, address and public key of each. With `join`, where
            to write it; entries that are added to it later are read.
        key: This worker's key pair, by name or file: `gossamer keys new NAME` makes one. Only workers that
            are all on this machine may do without.
        join: In place of a peers file, members that may be running, as ["KEY@HOST:PORT", ...]: the first
            that answers tells who the others are. They must admit this worker's key already. Without keys,
            ["HOST:PORT"].
        run: A name that keeps two runs of the same peers apart.
        plain: Neither encrypt nor authenticate, though others can reach the port. For a network that is
            protected otherwise.
        connections: Connections to each neighbour. More than one helps on links that are fast and long.
        wait: For whom a round waits: "all" its neighbours, a "quorum" of half of them or "quorum:2", or so
            many seconds. Who is late is heard in a later round; a worker that is behind skips rounds.
        silence: Seconds without a sign of life after which a neighbour counts as lost.
        deadline: Seconds that a round waits for a neighbour that gives signs of life, but no message.

    Returns:
        A transport. It listens from now on.

    Raises:
        ValueError: The file, the key and the address do not go together; the text says what to do.

    Example:
        A worker that is alone in its peers file:

        >>> import gossamer
        >>> from gossamer._mesh.peers import Peer, Peers
        >>> alone = Peers((Peer(0, "alice", "127.0.0.1:7801", "0" * 64),))
        >>> transport = gossamer.mesh("127.0.0.1:7801", alone)
        >>> transport.rank, transport.size
        (0, 1)
        >>> transport.close()

        One that knows nothing but alice's key and address, and whose key alice admits:

        >>> def bob(alice_key):
        ...     return gossamer.mesh("0.0.0.0:7000", join=[f"{alice_key}@198.51.100.7:7000"], key="bob")
    """
    patience = Patience.read(wait)
    _require_sensible(connections, silence, deadline)
    own_key = key if isinstance(key, Key) or key is None else load_key(str(key))
    host, port = parse_address(listen)
    roster, path = _roster(peers, join, own_key, listen, plain=plain)
    everybody = roster.peers
    me = _own_entry(everybody, own_key, listen)
    own_key = _require_key(everybody, own_key, host, plain=plain)
    known = [Member(p.id, p.key, p.name, p.address) for p in everybody.all if not p.revoked]
    own = Member(me.id, me.key, me.name, me.address, int(time.time()), Status.WAITING)
    protocol = Protocol(
        own,
        [member for member in known if member.id != me.id],
        _run_of(run, roster),
        lambda: secrets.randbits(62) | 1,
        time.monotonic(),
        Timing(silence=silence, suspicion=silence),
    )
    admission = Admission(everybody, path)
    admission.on_new = lambda p: protocol.expect(Member(p.id, p.key, p.name, p.address))
    protocol.admits, protocol.windows = admission, max(1, connections // 2)
    listening = Listening(_bound(host, port), own_key, connections)
    sockets = Sockets(protocol, listening, admission, me.key)
    sockets.roster = lambda: replace(roster, peers=admission.peers)
    founders = [peer.id for peer in roster.founders.all if not peer.revoked]
    return MeshTransport(protocol, sockets, roster.workers, deadline, patience, founders)


def ask_to_join(join: Sequence[str], key: str | Path | Key | None, listen: str, *, plain: bool) -> Roster:
    """Return what the first of some members tells that answers; `mesh` takes it in their place."""
    own_key = key if isinstance(key, Key) or key is None else load_key(str(key))
    doors, host = [parse_door(text) for text in join], parse_address(listen)[0]
    hosts = [host, *(parse_address(door.address)[0] for door in doors)]
    roster = learn(doors, _key_between(hosts, own_key, plain=plain))
    me = _own_entry(roster.peers, own_key, listen)
    if (
        parse_address(me.address)[1] != parse_address(listen)[1]
    ):  # right behind a router, and a slip elsewhere
        log.warning("this worker listens on %s, and the others look for it at %s", listen, me.address)
    return roster


def _roster(
    peers: str | Path | Peers | None,
    join: Sequence[str] | Roster,
    key: Key | None,
    listen: str,
    *,
    plain: bool,
) -> tuple[Roster, Path | None]:
    """Return who there is and how the run begins, or has begun; and the file to look into for changes."""
    path = None if peers is None or isinstance(peers, Peers) else Path(peers)
    if not join:
        if peers is None:
            raise ValueError("who are the others? peers='peers.toml', or join=['KEY@HOST:PORT']")
        return founded_now(peers if isinstance(peers, Peers) else read_peers(Path(peers))), path
    if isinstance(join, str):
        raise ValueError("join is a list, as in join=['KEY@HOST:PORT']")
    if isinstance(peers, Peers):
        raise ValueError("with join, peers is the file to write; leave it out to write none")
    roster = join if isinstance(join, Roster) else ask_to_join(join, key, listen, plain=plain)
    if path is not None:
        _keep(path, roster.peers)
    return roster, path


def _keep(path: Path, peers: Peers) -> None:
    """Write a peers file that was told; what was written before may only have grown."""
    before = [peer.key for peer in read_peers(path).all] if path.exists() else []
    if before != [peer.key for peer in peers.all[: len(before)]]:
        raise ValueError(f"{path} has other entries than the member that was asked: is it another mesh?")
    write_peers(path, peers)


def _require_sensible(connections: int, silence: float, deadline: float) -> None:
    if isinstance(connections, bool) or not isinstance(connections, int) or not 1 <= connections <= 64:
        raise ValueError(f"connections={connections!r}: a number from 1 to 64")
    if not 2 * BEAT <= silence < math.inf:
        raise ValueError(
            f"silence={silence!r}: {2 * BEAT:g} seconds or more, as a sign of life comes every {BEAT:g} s"
        )
    if not 0 < deadline < math.inf:
        raise ValueError(f"deadline={deadline!r}: a number of seconds")


def _run_of(run: str, roster: Roster) -> bytes:
    """Return the number of the run, which is that of the member who was asked, if one was."""
    own = _run_id(run, roster.peers)
    if roster.run and roster.run != own:
        raise ValueError(
            "the member that was asked is in another run: same algorithm, compressor, topology and run name?"
        )
    return own


def _own_entry(everybody: Peers, key: Key | None, listen: str) -> Peer:
    """Return who in the file this worker is: the owner of its key, or who has its address."""
    if key is not None:
        found = everybody.by_key(key.public)
        if found is None:
            raise ValueError(f"the peers file has no entry with the public key of {key.name}: add it")
    else:
        port = parse_address(listen)[1]
        found = next((p for p in everybody.all if parse_address(p.address)[1] == port), None)
        if found is None:
            raise ValueError(f"no peer has port {port}: listen on the port that the peers file has for you")
    if found.revoked:
        raise ValueError(f"the peers file has revoked {found.name}: it is not admitted any more")
    return found


def _require_key(everybody: Peers, key: Key | None, host: str, *, plain: bool) -> Key | None:
    """Return the key to encrypt with; None only on this machine, or where people asked for it."""
    return _key_between([host, *(parse_address(p.address)[0] for p in everybody.all)], key, plain=plain)


def _key_between(hosts: Sequence[str], key: Key | None, *, plain: bool) -> Key | None:
    if all(map(is_loopback, hosts)):
        return key
    if plain:
        log.warning("plain: nothing is encrypted, and whoever reaches the port can take part")
        return None
    if key is None:
        raise ValueError(
            "a mesh that others can reach needs a key: gossamer keys new NAME, then key='NAME' here and its "
            "public key in the peers file; or plain=True on a network that is protected otherwise"
        )
    return key


def _run_id(run: str, everybody: Peers) -> bytes:
    """Return what keeps runs apart, and stays when entries are added to the peers file or revoked."""
    return hashlib.sha256(f"{run} {everybody.all[0].key}".encode()).digest()[:8]


def _bound(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
