"""`gossamer`: the commands, and one way of telling what went wrong."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

import gossamer
from gossamer.cli.doctor import doctor
from gossamer.cli.results import export_command, report_command
from gossamer.cli.run import compare_command, simulate_command, train_command
from gossamer.cli.show import algorithms, compressors, topology
from gossamer.runs.explain import is_explained, message

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train one PyTorch model over machines joined by slow links, without a server.",
    epilog="Start with: gossamer train. See docs/runs.md for what a run's folder holds.",
)
COMMANDS: dict[str, Callable[..., None]] = {
    "train": train_command,
    "simulate": simulate_command,
    "compare": compare_command,
    "report": report_command,
    "export": export_command,
    "topology": topology,
    "compressors": compressors,
    "algorithms": algorithms,
    "doctor": doctor,
}
for name, command in COMMANDS.items():
    app.command(name)(command)


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
    """Handle what comes before a command."""


def main() -> None:
    """Run the command line; say what went wrong in one line where one line says it."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if not is_explained(error):
            raise
        text = escape(message(error))
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"[red]error:[/red] {text}")
        sys.exit(1)
