"""A real exchange with the other members of a mesh, both ways: the doctor's checks before or during a run.

The doctor asks every member for its status, over a connection as workers have it. It also listens where the
worker will, and answers: so two doctors, one on each machine, find out whether both ways are open. While a
worker is running with this key, the port is taken, and only questions are asked.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from gossamer._doors.mesh import _bound, _own_entry, _require_key
from gossamer._mesh.ask import Answer, Asker
from gossamer._mesh.connections import Trouble
from gossamer._mesh.contacts import Timing
from gossamer._mesh.keys import Key, fingerprint, load_key
from gossamer._mesh.members import Member, Status
from gossamer._mesh.peers import Peer, Peers, parse_address, read_peers
from gossamer._mesh.sockets import Listening, Sockets
from gossamer._mesh.status import DOCTOR, Listener
from gossamer.cli.addresses import check_listen, check_seen, with_ipv6
from gossamer.cli.exchange import Finding
from gossamer.cli.remarks import remarks

PATIENCE = 5.0  # seconds for an answer
HEARING = 6.0  # seconds for a member to come by: a worker looks for those that are gone every three
PAUSE = 0.5  # seconds between two questions
COURTESY = 1.0  # seconds for which the last answers go out
BOTH = "gossamer doctor --listen ... --peers ... --key ... --wait 60"
NEWER = "install the same version on all machines"
REMEDIES = {
    Trouble.UNRESOLVED: "correct its address in the peers file, or this machine's DNS",
    Trouble.REFUSED: f"start its worker, or on its machine: {BOTH}",
    Trouble.FILTERED: "open its TCP port {port} in firewalls, cloud settings and routers on the way",
    Trouble.HANGS: "see on its machine which program has the port: ss -ltnp",
    Trouble.FOREIGN: "see on its machine which program has the port: ss -ltnp",
    Trouble.MIXED: "all with --key, or all with --plain",
    Trouble.WRONG_KEY: "what the peers file must have is printed there by: gossamer keys show {name}",
    Trouble.NOT_ADMITTED: "its peers file must have this worker's key, {own}, and not revoke it",
    Trouble.SILENT: "try again; it may have an older version of gossamer",
    Trouble.BROKEN: "try again; it has just gone",
}
LEVELS: dict[str, Literal["warning"]] = {"version": "warning", "clock": "warning"}


@dataclass(frozen=True)
class Place:
    """Who and where this worker is, checked."""

    me: Peer
    everybody: Peers
    key: Key | None
    host: str
    port: int


def find_place(listen: str, peers: Path, key: str | None, *, plain: bool) -> Place | Finding:
    """Return who this worker is, or why its key, its peers file and its address do not go together."""
    try:
        everybody = read_peers(peers)
        own = load_key(key) if key is not None else None
        host, port = parse_address(listen)
        _compare_keys(everybody, own)
        me = _own_entry(everybody, own, listen)
        return Place(me, everybody, _require_key(everybody, own, host, plain=plain), host, port)
    except ValueError as error:
        return Finding("problem", "key", str(error))


def _compare_keys(everybody: Peers, own: Key | None) -> None:
    """Refuse a key that the peers file does not know, if it has another one of that name."""
    namesake = next((peer for peer in everybody.all if own is not None and peer.name == own.name), None)
    if own is not None and namesake is not None and everybody.by_key(own.public) is None:
        keys = f"{fingerprint(namesake.key)}..., not {fingerprint(own.public)}..."
        raise ValueError(
            f"the peers file has another key for {own.name}: {keys}: write into it what gossamer keys show "
            f"{own.name} prints, on all machines"
        )


def check_place(place: Place, addresses: dict[str, str]) -> list[Finding]:
    """Check the key, and where the worker listens and is looked for."""
    me, where = place.me, with_ipv6(addresses)
    told = "nothing is encrypted" if place.key is None else f"key {fingerprint(me.key)}"
    return [
        Finding("ok", "key", f"this worker is {me.name}, number {me.id} of the peers file; {told}"),
        check_listen(place.host, place.port, place.everybody, where),
        *check_seen(me, place.host, place.port, place.everybody, where),
    ]


def check_peers(place: Place, only: str | None = None, wait: float = 0.0) -> list[Finding]:
    """Exchange questions and answers with the other members, or one; wait so long for those not there yet."""
    asked = [p for p in place.everybody.all if p.id != place.me.id and not p.revoked]
    if only is not None:
        asked = [place.everybody.by_name(only)]
    try:
        listener = _listen(place)
    except ValueError as error:
        own = _ask_own(place)
        answers = _ask(place, asked, None, wait)
        if own is None or own.told is None:
            return [Finding("problem", "port", str(error)), *_findings(place, answers, answers, None)]
        links = ", ".join(f"{link.peer} {'up' if link.up else 'down'}" for link in own.told.links)
        text = (
            f"a worker is running here with this key, in round {own.told.round}; its links: {links or 'none'}"
        )
        return [Finding("ok", "port", text), *_findings(place, answers, [own, *answers], None)]
    try:
        free = Finding("ok", "port", f"port {place.port} is free; what came in meanwhile was answered")
        answers = _ask(place, asked, listener, wait)
        return [free, *_findings(place, answers, answers, listener)]
    finally:
        listener.close()


def _listen(place: Place) -> Sockets:
    """Listen as the worker will, and answer questions; greetings are not answered."""
    known = [Member(p.id, p.key, p.name, p.address) for p in place.everybody.all]
    me = replace(known[place.me.id], status=Status.ALIVE)
    others = [member for member in known if member.id != me.id]
    protocol = Listener(me, others, bytes(8), lambda: 1, time.monotonic(), Timing())
    listening = Listening(_bound(place.host, place.port), place.key)
    admitted = place.everybody.admitted()
    sockets = Sockets(protocol, listening, lambda key: key in admitted, place.me.key)
    sockets.start()
    return sockets


def _ask_own(place: Place) -> Answer | None:
    """Ask whoever has this worker's port."""
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(place.host, place.host)  # noqa: S104 - the other way round
    me = replace(place.me, address=_bound(here, place.port))
    with Asker([me], place.key, place.me.key) as asker:
        return asker.ask(PATIENCE)[0]


def _ask(place: Place, peers: Sequence[Peer], listener: Sockets | None, wait: float) -> list[Answer]:
    """Ask until all have answered and were heard here, or time is up."""
    began, answers = time.monotonic(), dict[int, Answer]()
    with Asker(peers, place.key, place.me.key) as asker:
        while True:
            for answer in asker.ask(PATIENCE):
                if answer.told is not None or not _has_answered(answers.get(answer.peer.id)):
                    answers[answer.peer.id] = answer
            passed = time.monotonic() - began
            absent = any(not _has_answered(answer) for answer in answers.values())
            unheard = any(_has_answered(a) and not _was_heard(a.peer, listener) for a in answers.values())
            if not (absent and passed < wait) and not (unheard and passed < max(wait, HEARING)):
                break
            time.sleep(PAUSE)
    if listener is not None and listener.received:
        time.sleep(COURTESY)
    return list(answers.values())


def _has_answered(answer: Answer | None) -> bool:
    return answer is not None and answer.told is not None


def _was_heard(peer: Peer, listener: Sockets | None) -> bool:
    """Return whether something came from a member over a connection of its own, where somebody listens."""
    return listener is None or listener.received[peer.id] > 0


def _findings(
    place: Place, answers: Sequence[Answer], compared: Sequence[Answer], listener: Sockets | None
) -> list[Finding]:
    """Return what came of the exchange with each, in what they differ, and who else has knocked."""
    found = [_finding(place, answer, listener) for answer in answers]
    about = remarks(compared, place.everybody)
    found += [Finding(LEVELS.get(each.what, "problem"), each.what, each.text) for each in about]
    away = dict(listener.turned_away) if listener is not None else {}
    if away:
        text = f"connections were turned away, by key: {', '.join(f'{key} ({n})' for key, n in away.items())}"
        remedy = "a worker that should take part must be in this peers file, and not be revoked"
        found.append(Finding("warning", "strangers", text, remedy))
    twins = [a.peer.name for a in answers if listener is not None and _knows_me(place, a)]
    if twins:
        text = f"{', '.join(twins)} can reach a worker with this key, and it is not here"
        remedy = (
            "if one is running elsewhere, make a key of its own for each; one that has just ended is fine"
        )
        found.append(Finding("warning", "key", text, remedy))
    return found


def _knows_me(place: Place, answer: Answer) -> bool:
    """Return whether a member has a worker with this key for a neighbour."""
    return answer.told is not None and any(
        link.up and link.peer == place.me.name for link in answer.told.links
    )


def _finding(place: Place, answer: Answer, listener: Sockets | None) -> Finding:
    peer, told = answer.peer, answer.told
    who, port = f"{peer.name} at {peer.address}", parse_address(peer.address)[1]
    if told is None:
        detail = _refusal(peer.address) if answer.trouble == Trouble.REFUSED else ""
        remedy = REMEDIES.get(Trouble(answer.trouble), "") if answer.trouble in set(Trouble) else NEWER
        remedy = remedy.format(name=peer.name, port=port, own=place.me.key)
        return Finding("problem", "peer", f"{who}: {answer.trouble}{detail}", remedy)
    secret = "" if place.key is None else "encrypted, "
    text = f"{who} answers, {secret}in {answer.took * 1e3:.3g} ms ({told.doing}, round {told.round})"
    if listener is None:
        return Finding("ok", "peer", text)
    if _was_heard(peer, listener):
        return Finding("ok", "peer", f"{text}, and reaches this port")
    sure = told.doing == DOCTOR
    remedy = f"open TCP port {place.port} of this machine: firewall, cloud settings, router"
    remedy += "" if sure else f"; to be sure, on both machines at once: {BOTH}"
    text = f"{text}, but nothing of its own has reached port {place.port} here"
    return Finding("problem" if sure else "warning", "peer", text, remedy)


def _refusal(address: str) -> str:
    """Return what the system says of a connection that was refused."""
    try:
        with socket.create_connection(parse_address(address), timeout=PATIENCE):
            return ""
    except OSError as error:
        return f" ({error.strerror or error})"
