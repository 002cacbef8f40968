"""The report as one HTML file: no other file, no request, no script needed."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from gossamer import __version__
from gossamer.report import format as human
from gossamer.report.curves import AXES, FEW, Drawn, draw, losses, metrics
from gossamer.report.graph import draw_graph, links
from gossamer.report.headline import explanation, headline, saving
from gossamer.report.partition import draw_partition
from gossamer.report.plots import OVER
from gossamer.report.style import DARK, LIGHT, PAGE, line, theme
from gossamer.report.svg import inline
from gossamer.report.table import Row, groups, labels, rows
from gossamer.runs.record import Run
from gossamer.runs.summary import Graph

OPEN = 2  # up to so many runs are unfolded from the start


def write_report(runs: Sequence[Run], path: str | Path) -> Path:
    """Write one HTML file that shows these runs and needs nothing else; return its path."""
    if not runs:
        raise ValueError("there are no runs to report: name at least one run's folder")
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(runs), encoding="utf-8")
    return path


def render(runs: Sequence[Run]) -> str:
    """Return the page."""
    templates = Environment(
        loader=PackageLoader("gossamer", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {
        "size": human.size,
        "duration": human.duration,
        "number": human.number,
        "whole": human.whole,
        "times": human.times,
        "setting": _setting,
    }
    script = templates.get_template("page.js.j2").render()
    with theme(PAGE):
        return templates.get_template("page.html.j2").render(
            headline=headline(runs),
            explanation=explanation(runs),
            rows=_rows(runs),
            metric=_common({run.summary.metric for run in runs if run.summary.metric}),
            curves=_curves(runs),
            runs=[_run(run, i, name) for i, (run, name) in enumerate(zip(runs, labels(runs), strict=True))],
            unfolded=len(runs) <= OPEN,
            light=LIGHT.named(),
            dark=DARK.named(),
            script=Markup(script),  # noqa: S704 - it is our own, and has nothing of the runs
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
            version=__version__,
        )


@dataclass(frozen=True)
class ShownRow:
    """A row of the table as the page shows it."""

    row: Row
    best: bool
    fewest: bool
    average: str
    local: str
    swatch: Markup
    legend: Markup


def _rows(runs: Sequence[Run]) -> list[ShownRow]:
    """Return the table's rows with what a page needs: a swatch, formatted values, and which are best."""
    table = rows(runs)
    done = [row for row in table if row.status == "finished"]
    comparable = len(done) > 1 and len({(row.task, row.metric) for row in done}) == 1
    best = max((row.goodness for row in done), default=-math.inf)
    fewest = min((row.bytes_per_worker for row in done if row.bytes_per_worker is not None), default=None)
    return [
        ShownRow(
            row,
            best=comparable and row in done and row.average is not None and row.goodness == best,
            fewest=comparable and row in done and row.bytes_per_worker == fewest,
            average=human.measure(row.metric, row.average),
            local=human.measure(row.metric, row.local_mean),
            swatch=_swatch(i, "table"),
            legend=_swatch(i, "legend"),
        )
        for i, row in enumerate(table)
    ]


def _swatch(i: int, where: str) -> Markup:
    """Draw the piece of line that stands for the i-th run in every figure."""
    figure = Figure(figsize=(0.4, 0.16))
    figure.add_artist(
        Line2D([0.06, 0.5, 0.94], [0.5] * 3, markevery=[1], **line(PAGE, i) | {"markersize": 5.5})
    )
    return Markup(inline(figure, f"{where}-{i}"))  # noqa: S704 - svg.inline escapes


def _curves(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the figures of every task: its title, its metric's panels, its loss's panels, a remark."""
    found = groups(runs)
    sections = []
    for k, ((task, metric), which) in enumerate(found.items()):
        value, loss = metrics(runs, which), losses(runs, which)
        panels = [*_panels(value, metric, f"metric-{k}"), *_panels(loss, "training loss", f"loss-{k}")]
        section = {
            "title": task if len(found) > 1 else "",
            "figures": panels,
            "which": which,
            "metric": metric,
            "faint": bool(value) and len(value) <= FEW,
            "band": bool(loss) and len(loss) <= FEW,
            "unevaluated": not value,
            "diverged": any(drawn.diverged for drawn in (*value, *loss)),
        }
        sections.append(section)
    return sections


def _panels(curves: list[Drawn], what: str, prefix: str) -> list[Markup]:
    found = []
    for over in AXES if curves else ():
        figure = Figure(figsize=(4.0, 2.7))
        draw(figure.add_subplot(), curves, what, over, PAGE)
        text = inline(figure, f"{prefix}-{over}", f"{what} over {OVER[over]}")
        found.append(Markup(text))  # noqa: S704 - svg.inline escapes
    return found


def _run(run: Run, i: int, label: str) -> dict[str, Any]:
    """Return what the page shows of one run."""
    graph, partition = draw_graph(run, PAGE), draw_partition(run, PAGE)
    return {
        "id": f"run-{i}",
        "name": run.name,
        "label": label,
        "summary": run.summary,
        "graph": Markup(inline(graph, f"graph-{i}", "the graph")) if graph else None,  # noqa: S704
        "partition": Markup(inline(partition, f"partition-{i}", "the partition")) if partition else None,  # noqa: S704
        "graph_caption": _graph_caption(run),
        "saving": saving(rows([run])[0]),
        "facts": _facts(run),
        "command": run.environment.get("command"),
        "versions": _versions(run.environment),
        "config": run.config,
    }


def _graph_caption(run: Run) -> str:
    """Say what the colours of the links mean, and how uneven they are."""
    graph = run.summary.graph or Graph()
    sent = [n for n in links(run).values() if n > 0]
    ways = "" if graph.directed else ", both ways together"
    text = f"{run.summary.topology}, {len(links(run))} links"
    if sent:
        text += f"; the busiest carried {human.size(max(sent))}{ways}"
    return text + ("; the graph changes, and all its links are shown." if graph.varying else ".")


def _facts(run: Run) -> list[tuple[str, str]]:
    """Return the numbers of a run that the table has no room for."""
    s, graph = run.summary, run.summary.graph or Graph()
    shown = [
        *((f"{name}, averaged model", human.measure(name, x)) for name, x in (s.average or {}).items()),
        *(
            (f"{name}, mean of local models", human.measure(name, x))
            for name, x in (s.local_mean or {}).items()
        ),
        ("consensus distance", human.number(s.consensus_distance)),
        ("training loss", human.number(s.train_loss)),
        ("steps", human.whole(s.steps)),
        ("epochs", human.number(s.epochs)),
        ("parameters", human.whole(s.parameters)),
        ("gamma", human.number(s.gamma)),
        ("spectral gap", human.number(graph.gap)),
        ("diameter", human.whole(graph.diameter)),
        (f"{s.clock or ''} time".strip(), human.duration(s.seconds)),
        ("network", s.network or human.MISSING),
        ("partition", (s.partition and s.partition.kind) or human.MISSING),
    ]
    return [(name, text) for name, text in shown if text != human.MISSING]


def _setting(value: object) -> str:
    """Format a setting as one would type it."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _common(values: set[str]) -> str | None:
    return values.pop() if len(values) == 1 else None


def _versions(environment: dict[str, Any]) -> dict[str, Any]:
    """Return what a run ran on, the time as people write it."""
    found = {key: value for key, value in environment.items() if key != "command"}
    with suppress(TypeError, ValueError, KeyError):
        found["started"] = f"{datetime.fromisoformat(found['started']):%Y-%m-%d %H:%M %Z}".strip()
    return found
