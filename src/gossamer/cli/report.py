"""gossamer report and export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

import gossamer
from gossamer.cli.outcome import table_of
from gossamer.report import as_csv, as_json, write_plots, write_report
from gossamer.runs.record import read_run


def report_command(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or of comparisons.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="The page to write; report.html in the first run if left out."),
    ] = None,
    plots: Annotated[
        Path | None, typer.Option("--plots", help="Also write PNG and SVG figures for papers to this folder.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the table as JSON, write nothing.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print the table as CSV, write nothing.")] = False,
) -> None:
    """Show runs on one page that works offline: curves, the graph, the table, and how to repeat them.

    [bold]Examples[/bold]

    gossamer report runs/digits-choco-1

    gossamer report runs/* --out all.html --plots figures

    gossamer report runs/compare-digits-1 --csv
    """
    found = [read_run(folder) for given in runs for folder in _runs_in(given)]
    if json or csv:
        typer.echo(as_json(found) if json else as_csv(found), nl=False)
        return
    console = Console(highlight=False, soft_wrap=True)
    console.print(table_of(found))
    page = write_report(found, out or runs[0] / "report.html")
    console.print(f"The page is {escape(str(page))}")
    if plots is not None:
        write_plots(found, plots)
        console.print(f"The figures are in {escape(str(plots))}")


def export_command(
    run: Annotated[Path, typer.Argument(help="The run's folder.")],
    path: Annotated[Path, typer.Argument(help="The file to write, such as model.safetensors.")],
) -> None:
    """Write the model that a run has trained: the average of all workers' newest common checkpoint.

    Load it with model.load_state_dict(safetensors.torch.load_file("model.safetensors")).

    [bold]Example[/bold]

    gossamer export runs/digits-choco-1 model.safetensors
    """
    step = gossamer.runs.export(run, path)
    Console(highlight=False, soft_wrap=True).print(
        f"{escape(str(path))} holds the average model after step {step}"
    )


def _runs_in(folder: Path) -> list[Path]:
    """Return the run in a folder, or the runs of a comparison."""
    inside = sorted(path.parent for path in folder.glob("*/config.json"))
    return [folder] if (folder / "config.json").exists() or not inside else inside
