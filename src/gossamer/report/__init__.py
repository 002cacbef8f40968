"""Reports of runs: a table as JSON or CSV, plots for papers, one page for everybody.

The plots and the page need `pip install 'gossamer[report]'`; the table needs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from gossamer.report.table import as_csv, as_json, rows
from gossamer.runs.record import Run

__all__ = ["as_csv", "as_json", "rows", "write_plots", "write_report"]


def write_plots(
    runs: Sequence[Run], folder: str | Path, formats: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write the figures of these runs for a paper, each in every format; return the files."""
    _need("matplotlib")
    from gossamer.report.plots import write_plots as write  # noqa: PLC0415 - matplotlib is optional

    return write(runs, folder, formats)


def write_report(runs: Sequence[Run], path: str | Path) -> Path:
    """Write one HTML file that shows these runs and needs nothing else; return its path."""
    _need("matplotlib", "jinja2")
    from gossamer.report.page import write_report as write  # noqa: PLC0415 - matplotlib is optional

    return write(runs, path)


def _need(*packages: str) -> None:
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ImportError(f"plots and reports need {' and '.join(missing)}: pip install 'gossamer[report]'")
