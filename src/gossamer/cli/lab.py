"""gossamer lab: any run, or any command, on slow links between namespaces of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from gossamer.lab import Lab, Measured, Scenario, measure, names
from gossamer.lab.everywhere import run_everywhere
from gossamer.lab.namespaces import LAB, NAMESPACES
from gossamer.report.format import SPACE, number

SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


def lab(
    context: typer.Context,
    command: Annotated[str, typer.Argument(help="train, or exec for your own command.")],
    workers: Annotated[int, typer.Option("--workers", help="How many.")] = 8,
    bandwidth: Annotated[
        str, typer.Option("--bandwidth", help="Of every worker, up and down.")
    ] = "unlimited",
    latency: Annotated[str, typer.Option("--latency", help="One way, between any two.")] = "0ms",
    jitter: Annotated[str, typer.Option("--jitter", help="By how much latencies vary.")] = "0ms",
    loss: Annotated[float, typer.Option("--loss", help="The fraction of packets that is lost.")] = 0.0,
    scenario: Annotated[
        str | None, typer.Option("--scenario", help=f"{', '.join(names())}, or a TOML file.")
    ] = None,
    measured: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Measure the links before the run.")
    ] = True,
) -> None:
    """Run workers on slow links for real: each in its own network namespace, joined by a switch.

    Needs Linux and root. What was emulated is measured and shown before the run; nothing is left behind.

    [bold]Examples[/bold]

    gossamer lab --workers 8 --bandwidth 10mbit --latency 20ms train --task digits --compressor sign

    gossamer lab --scenario homes train --algorithm dpsgd

    gossamer lab --bandwidth 100mbit --latency 5ms exec -- python my_ddp_script.py
    """
    if command not in ("train", "exec"):
        raise ValueError(f"gossamer lab runs train or exec, not {command}")
    arguments = context.args[1:] if context.args[:1] == ["--"] else context.args
    if command == "exec" and not arguments:
        raise ValueError("nothing to execute; say for example: gossamer lab exec -- python train.py")
    with Lab(_scenario(scenario, workers, bandwidth, latency, jitter, loss)) as place:
        _describe(place, measure(place) if measured else None)
        place.run_events()
        if command == "exec":
            raise typer.Exit(run_everywhere(place, arguments, sys.stdout))
        with _environment(place):
            _run_train(["--workers", str(place.n), *arguments])


def _scenario(
    name: str | None, workers: int, bandwidth: str, latency: str, jitter: str, loss: float
) -> Scenario:
    if name is None:
        return Scenario.uniform(workers, bandwidth, latency, jitter, loss)
    if name.endswith((".toml", ".json")) or Path(name).is_file():
        return Scenario.from_file(name, workers)
    return Scenario.named(name, workers)


def _run_train(arguments: list[str]) -> None:
    """Call `gossamer train` as if it had been typed."""
    from gossamer.cli.main import app

    app(["train", *arguments], standalone_mode=True)


@contextmanager
def _environment(place: Lab) -> Iterator[None]:
    """Set the environment by which a run that is launched here uses the lab's namespaces."""
    own = place.environment(0)
    kept = {name: own[name] for name in ("GLOO_SOCKET_IFNAME", "MASTER_ADDR", "MASTER_PORT")}
    before = dict(os.environ)
    os.environ |= kept
    os.environ[NAMESPACES] = " ".join(place.namespace(i) for i in range(place.n))
    os.environ[LAB] = str(place.scenario)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def _describe(place: Lab, found: Measured | None) -> None:
    console = Console(highlight=False)
    for name in place.swept:
        console.print(f"removed {name}, which an earlier lab had left behind")
    late = "" if place.realtime else "; without real-time priority: a busy machine delays packets"
    about = f"{place.engine}, TCP congestion control {place.congestion_control}{late}"
    console.print(f"{place.scenario} ({about})", soft_wrap=True)
    if found is None:
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("link", "round trip, ms", "wanted", "throughput, Mbit/s", "wanted"):
        table.add_column(heading, justify="left" if heading == "link" else "right")
    for trip, rate in zip(found.round_trips, found.throughputs, strict=True):
        table.add_row(
            f"{trip.source}{SPACE}→{SPACE}{trip.target}",
            *(number(None if v is None else v * 1e3, 3) for v in (trip.measured, trip.wanted)),
            *(number(None if v is None else v / 1e6, 3) for v in (rate.measured, rate.wanted)),
        )
    console.print(table)
