"""gossamer status: who of a mesh is there, in which round, and how the links do."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from gossamer.cli.remarks import remarks, said_of
from gossamer.report import format as human

if TYPE_CHECKING:  # they load zmq and graphs, for which the command's help has no time
    from gossamer._mesh.ask import Answer
    from gossamer._mesh.keys import Key
    from gossamer._mesh.peers import Peers
    from gossamer._mesh.status import LinkStatus, MemberStatus

PAUSE = 1.0  # seconds between two looks
PATIENCE = 5.0  # seconds for all answers, where one look is all
THERE = ("waiting", "alive")
MEMBERS = ("member", "", "round", "knows", "turned away")
LINKS = ("link", "", "sent", "received", "round trip", "rate", "resent", "refused", "drift")
NUMBERS = ("round", "sent", "received", "round trip", "rate", "resent", "drift")
PeersFile = Annotated[Path, typer.Option("--peers", help="The peers file: name, address and key of each.")]
KeyName = Annotated[
    str | None, typer.Option("--key", help="The key to ask with, by name or file: any that the peers admit.")
]


def status(
    peers: PeersFile,
    key: KeyName = None,
    plain: Annotated[bool, typer.Option("--plain", help="The mesh does not encrypt.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Look again every second, until Ctrl-C.")] = False,
) -> None:
    """Ask all members of a mesh how they are: their rounds, whom they know, how their links do.

    Training goes on undisturbed, also if the key is that of a running worker.

    The exit code is 1 if nobody answers.

    [bold]Examples[/bold]

    gossamer status --peers peers.toml --key alice

    gossamer status --peers peers.toml --key alice --watch
    """
    from gossamer._mesh.ask import Asker
    from gossamer._mesh.peers import read_peers

    everybody = read_peers(peers)
    own, console = key_for(everybody, key, plain=plain), Console(highlight=False)
    with Asker([peer for peer in everybody.all if not peer.revoked], own) as asker:
        if watch:
            return _watch(lambda: asker.ask(PAUSE), everybody, console, as_json=as_json)
        answers = asker.ask(PATIENCE)
    if as_json:
        console.print_json(data=described(answers, everybody), ensure_ascii=True)
    else:
        console.print(tables(answers, everybody))
    if not any(answer.told for answer in answers):
        raise typer.Exit(1)
    return None


def key_for(everybody: Peers, name: str | None, *, plain: bool) -> Key | None:
    """Return the key pair to ask with; None where nothing is encrypted."""
    from gossamer._mesh.keys import load_key
    from gossamer._mesh.peers import is_loopback, parse_address

    here = all(is_loopback(parse_address(peer.address)[0]) for peer in everybody.all)
    if (plain and not here) or (name is None and (plain or here)):  # as gossamer.mesh has it
        return None
    if name is None:
        raise ValueError("with which key? --key NAME, of any worker in the peers file; or --plain")
    own = load_key(name)
    if own.public not in everybody.admitted():
        raise ValueError(f"the peers file does not admit the key {own.name}: take one that it does")
    return own


def _watch(ask: Callable[[], list[Answer]], everybody: Peers, console: Console, *, as_json: bool) -> None:
    """Show the answers again and again; where there is no terminal, one after the other."""
    in_place = console.is_terminal and not as_json
    with suppress(KeyboardInterrupt), Live(console=console, auto_refresh=False) as live:
        while True:
            began = time.monotonic()
            answers = ask()
            if as_json:
                typer.echo(json.dumps(described(answers, everybody)))
            elif in_place:
                live.update(tables(answers, everybody), refresh=True)
            else:
                console.print(tables(answers, everybody))
            time.sleep(max(0.0, began + PAUSE - time.monotonic()))


def described(answers: Sequence[Answer], everybody: Peers) -> dict[str, Any]:
    """Return all of it, for JSON."""
    members = [
        {
            "name": answer.peer.name,
            "address": answer.peer.address,
            "answered": answer.told is not None,
            "trouble": answer.trouble,
            "said_to_be": said_of(answer, answers),
            "seconds": answer.took,
            "clock_ahead": answer.ahead,
            "status": asdict(answer.told) if answer.told else None,
        }
        for answer in answers
    ]
    return {"members": members, "remarks": [each._asdict() for each in remarks(answers, everybody)]}


def tables(answers: Sequence[Answer], everybody: Peers) -> Group:
    """Return all of it, for people."""
    members, links, notes = _table(*MEMBERS), _table(*LINKS), [r.text for r in remarks(answers, everybody)]
    for answer in answers:
        told, name = answer.told, answer.peer.name
        if told is None:
            said = said_of(answer, answers)
            members.add_row(
                name, f"[red]{escape(answer.trouble)}[/red]" + f"; others say: {said}" * bool(said)
            )
        else:
            members.add_row(name, _doing(told), str(told.round), _known(told), _counted(told.turned_away))
            for link in told.links:
                links.add_row(f"{name} > {link.peer}", *_cells(link))
                if link.trouble:
                    notes.append(f"{name} cannot reach {link.peer}: {link.trouble}")
    parts: list[RenderableType] = [members, ""]
    if links.rows:
        parts += [links, ""]
    return Group(*parts, *(f"[yellow]{escape(note)}[/yellow]" for note in notes))


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, collapse_padding=True)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in NUMBERS else "left", overflow="fold")
    return table


def _doing(told: MemberStatus) -> str:
    color = "green" if told.doing == "training" else "yellow"
    return f"[{color}]{escape(told.doing)}[/{color}]"


def _known(told: MemberStatus) -> str:
    """Return how many members of each kind it knows, and who is not there."""
    counts = Counter(member.status for member in told.members)
    names = {kind: [m.name for m in told.members if m.status == kind] for kind in counts if kind not in THERE}
    alive = f"{sum(counts[kind] for kind in THERE)} alive"
    return escape("; ".join([alive, *(f"{kind}: {', '.join(who)}" for kind, who in names.items())]))


def _cells(link: LinkStatus) -> tuple[str, ...]:
    """Return what a row says of a link."""
    state = ("[green]up[/green]" if link.edge else "idle") if link.up else "[red]down[/red]"
    rate = None if link.throughput is None else _size(link.throughput) + "/s"
    return (
        state,
        _size(link.sent),
        _size(link.received),
        "-" if link.round_trip is None else f"{link.round_trip * 1e3:.3g} ms",
        "-" if rate is None else f"{'>' * link.limited}{rate}",
        "-" if link.retransmits is None else str(link.retransmits),
        _counted(link.refused),
        str(link.drift),
    )


def _counted(counts: dict[str, int]) -> str:
    return escape(", ".join(f"{count} {reason}" for reason, count in counts.items())) or "0"


def _size(count: float) -> str:
    return human.size(count).replace(human.SPACE, " ")
