"""gossamer keys: make the key pair by which others know a worker, and show its public half."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gossamer._mesh.keys import Key, load_key, new_key

Folder = Annotated[
    Path | None,
    typer.Option("--folder", help="Where keys are; $GOSSAMER_KEYS or ~/.config/gossamer/keys without it."),
]

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Make and show key pairs, by which workers on machines far apart know each other.",
)


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="What to call it: letters, digits, dots, - and _.")],
    folder: Folder = None,
) -> None:
    """Make a key pair, in a file that only you can read; print what the peers file needs of it.

    The secret key stays in that file. The rest can go to everybody, and be added to a file as it is printed.

    [bold]Example[/bold]

    gossamer keys new alice
    """
    path = new_key(name, folder)
    typer.echo(f"# The key pair is in {path}; keep that file to yourself.")
    _print_peer(load_key(name, folder))


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="The name of a key, or the path of its file.")],
    folder: Folder = None,
) -> None:
    """Print again what the peers file needs of a key pair: never the secret key.

    [bold]Example[/bold]

    gossamer keys show alice
    """
    _print_peer(load_key(name, folder))


def _print_peer(key: Key) -> None:
    """Print an entry of a peers file; what is not one is a comment, so that all can be added to it."""
    typer.echo("# For peers.toml; write in it where the others reach this machine.")
    typer.echo(f'[[peer]]\nname = "{key.name}"\naddress = "HOST:PORT"\nkey = "{key.public}"')
