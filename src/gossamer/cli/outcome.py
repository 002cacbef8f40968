"""What commands print when they are done."""

from __future__ import annotations

import shlex
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gossamer.report import rows, write_plots, write_report
from gossamer.report.format import duration, measure, number, size, times
from gossamer.runs.record import Run, read_run
from gossamer.runs.summary import Summary

INTERRUPTED = 130
FAILED = 1


def show_outcome(folder: Path, summary: Summary) -> None:
    """Print how a run ended and what can be done with it; exit with a code that says the same."""
    console = Console(soft_wrap=True, highlight=False)
    status = summary.status
    if status in ("finished", "interrupted") and summary.average and summary.bytes_sent:
        console.print(escape(_result(summary)))
    if status == "diverged":
        console.print(f"The run diverged: {escape(str(summary.error))}")
    if status == "interrupted":
        word = "simulate" if summary.clock == "modelled" else "train"
        console.print(f"Stopped. Resume with: gossamer {word} --resume {escape(quoted(folder))}")
        raise typer.Exit(INTERRUPTED)
    here = escape(quoted(folder))
    console.print(f"The run is in {here}; see it with: gossamer report {here}")
    if status != "finished":
        raise typer.Exit(FAILED)


def show_table(folders: list[Path], out: Path) -> None:
    """Print the comparison, and write its page and plots."""
    runs = [read_run(folder) for folder in folders]
    console = Console(highlight=False)
    console.print(table_of(runs))
    page = write_report(runs, out / "report.html")
    write_plots(runs, out / "plots")
    console.print(f"The page is {escape(str(page))}; figures for papers are in {escape(str(out / 'plots'))}")
    failed = [run for run in runs if run.summary.status == "failed"]
    for run in failed:
        console.print(f"{escape(run.name)} failed: {escape(str(run.summary.error))}", soft_wrap=True)
    if any(run.summary.status == "interrupted" for run in runs):
        console.print("Stopped. Start the same command with the same --out to resume.")
        raise typer.Exit(INTERRUPTED)
    if failed:
        raise typer.Exit(FAILED)


def quoted(path: Path) -> str:
    """Return a path as it is typed in a shell."""
    return shlex.quote(str(path))


def table_of(runs: list[Run]) -> Table:
    """Return the comparison as a table for the terminal."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    found = rows(runs)
    metric = next((row.metric for row in found if row.metric), "metric")
    table.add_column("run", overflow="fold")
    for heading in (
        f"{metric}, average",
        "local mean",
        "consensus distance",
        "bytes per worker",
        "× fewer",
        "time",
    ):
        table.add_column(heading, justify="right", min_width=max(map(len, heading.split())))
    table.add_column("status")
    for row in found:
        words = (row.algorithm, row.compressor, row.topology)
        table.add_row(
            escape(row.name if len(found) > 1 else " ".join(word for word in words if word)),
            measure(row.metric, row.average),
            measure(row.metric, row.local_mean),
            number(row.consensus_distance, 3),
            size(row.bytes_per_worker),
            times(row.times_fewer),
            duration(row.seconds),
            row.status,
        )
    return table


def _result(summary: Summary) -> str:
    metric, sent, fewer = summary.metric, summary.bytes_per_worker, summary.times_fewer
    parts = [
        f"{metric} of the average model {measure(metric, summary.reached)}",
        f"of the local ones {measure(metric, summary.reached_locally)} on average",
        f"consensus distance {number(summary.consensus_distance, 3)}",
        f"{size(sent)} sent per worker",
    ]
    if fewer is not None and fewer > 1.05:
        parts[-1] += f", {times(fewer)} times fewer than in full precision"
    if summary.bytes_evaluating:
        parts.append(f"{size(summary.bytes_evaluating_per_worker)} more per worker for evaluations")
    where = f" on a network of {summary.network}" if summary.network else ""
    parts.append(f"{duration(summary.seconds)} of training, {summary.clock}{where}")
    return "\n".join(parts)
