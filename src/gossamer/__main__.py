"""The `gossamer` command, also as `python -m gossamer`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, if what it needs is installed."""
    try:
        from gossamer.cli.main import main as run  # noqa: PLC0415 - typer and rich are optional
    except ModuleNotFoundError as error:
        sys.exit(f"the gossamer command needs {error.name}: pip install 'gossamer[cli]'")
    run()


if __name__ == "__main__":
    main()
