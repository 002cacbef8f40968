"""`gossamer`: the commands, and how errors are shown."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, TextIO

import typer
from rich.console import Console
from rich.markup import escape

import gossamer
from gossamer.cli import keys, lab
from gossamer.cli.catalogue import algorithms, compressors, topologies
from gossamer.cli.doctor import doctor
from gossamer.cli.report import export_command, report_command
from gossamer.cli.status import status
from gossamer.cli.topology import topology
from gossamer.cli.train import compare_command, simulate_command, train_command
from gossamer.runs.processes.failures import is_explained, message

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train one PyTorch model over machines joined by slow links, without a server.",
    epilog="Start with: gossamer train. See docs/runs.md for what a run's folder holds.",
)
ERRORS = Console(stderr=True, soft_wrap=True, highlight=False)
SHOWN: set[str] = set()
COMMANDS: dict[str, Callable[..., None]] = {
    "train": train_command,
    "simulate": simulate_command,
    "compare": compare_command,
    "report": report_command,
    "export": export_command,
    "topology": topology,
    "compressors": compressors,
    "algorithms": algorithms,
    "topologies": topologies,
    "doctor": doctor,
    "status": status,
}
for name, command in COMMANDS.items():
    app.command(name)(command)
app.command("lab", context_settings=lab.SETTINGS)(lab.lab)
app.add_typer(keys.app, name="keys")


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning once, and without the line of our code."""
    if str(message) not in SHOWN:
        SHOWN.add(str(message))
        ERRORS.print(f"[yellow]note:[/yellow] {escape(str(message))}")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gossamer {gossamer.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version.")
    ] = False,
) -> None:
    """Handle the options before a command."""


def main() -> None:
    """Run the command line; show an error in one line where that is enough."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if not is_explained(error):
            raise
        text = escape(message(error))
        ERRORS.print(f"[red]error:[/red] {text}")
        sys.exit(1)
