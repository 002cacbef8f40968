"""Figures for papers, and what they are made of."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="no matplotlib: pip install 'gossamer[report]'")

import matplotlib as mpl
from matplotlib.image import imread

from gossamer.report import series, write_plots
from gossamer.report.graph import draw_graph, links
from gossamer.report.style import DARK, LIGHT, PAGE, theme
from gossamer.runs.record import read_run
from tests.support.synthetic_runs import run_folder


@pytest.mark.slow
def test_the_files_of_two_runs(tmp_path):
    runs = [read_run(run_folder(tmp_path / name, seed=i)) for i, name in enumerate(("a", "b c"))]
    before = dict(mpl.rcParams)
    files = write_plots(runs, tmp_path / "out")
    assert dict(mpl.rcParams) == before
    whats = [f"{what}-over-{over}" for what in ("metric", "loss") for over in ("steps", "bytes", "time")]
    names = {"curves", *whats, "graph-a", "graph-b-c", "partition-a", "partition-b-c"}
    assert {path.name for path in files} == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    picture = imread(tmp_path / "out" / "metric-over-bytes.png")
    assert picture.shape[1] == pytest.approx(3.4 * 300, abs=1)
    assert np.allclose(picture[0, 0, :3], 1)
    text = (tmp_path / "out" / "curves.svg").read_text()
    assert ">choco topk:0.01 ring" in text  # as text, that one can search and edit


def test_the_same_runs_make_the_same_files(tmp_path):
    runs = [read_run(run_folder(tmp_path / "mine", steps=22))]
    first, second = (write_plots(runs, tmp_path / name, formats=("svg",)) for name in "ab")
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_pyplot_is_not_touched():
    code = "import sys, gossamer.report.page; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_table_does_not_need_matplotlib(tmp_path):
    folder = run_folder(tmp_path / "mine", steps=11)
    code = f"""
import sys
sys.modules["matplotlib"] = None
import gossamer, gossamer.report
from gossamer.runs.record import read_run
runs = [read_run({str(folder)!r})]
assert "choco" in gossamer.report.as_csv(runs)
try:
    gossamer.report.write_report(runs, "never.html")
except ImportError as error:
    sys.exit(0 if "pip install 'gossamer[report]'" in str(error) else 2)
sys.exit(3)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    "options",
    [
        {"summary": False, "evaluate": False, "steps": 4},
        {"summary": False, "steps": 11},
        {"status": "diverged"},
        {"changes": {"graph": None, "links": [], "partition": None}},
        {"changes": {"average": None, "bytes_sent": None, "bytes_full": 0}},
        {"workers": 1, "edges": [[0, 0]], "sent": 0},
        {"workers": 300, "steps": 11, "changes": {"partition": {"kind": "iid", "counts": [[3] * 100] * 300}}},
    ],
)
@pytest.mark.slow
def test_runs_of_every_kind_can_be_drawn(tmp_path, options):
    run = read_run(run_folder(tmp_path / "$x_{1}$ 物", **options))
    for path in write_plots([run, run], tmp_path / "out", formats=("svg",)):
        assert path.stat().st_size > 1000


def test_loss_is_the_mean_of_workers_and_has_gaps(tmp_path):
    run = read_run(run_folder(tmp_path / "mine", workers=2, steps=20))
    for i in (0, 1):
        run.train[i][0]["loss"], run.train[i][1]["loss"] = 1.0 + 2 * i, None
    curve = series.loss(run)
    assert (curve.value[0], curve.low[0], curve.high[0]) == (2.0, 1.0, 3.0)
    assert np.isnan(curve.value[1])
    run.train[1].pop()  # one worker is behind
    assert series.loss(run).step.tolist() == [5, 10, 15]


def test_bytes_over_links_count_both_ways_unless_directed(tmp_path):
    run = read_run(run_folder(tmp_path / "a", workers=3, sent=1000))
    assert links(run) == {(0, 1): 1000, (1, 2): 1000, (0, 2): 1000}
    run = read_run(run_folder(tmp_path / "b", workers=3, sent=1000, directed=True))
    assert links(run) == {(0, 1): 1000, (1, 2): 1000, (2, 0): 1000}


def test_uneven_links_have_a_legend_of_classes(tmp_path):
    with theme(PAGE):
        figure = draw_graph(read_run(run_folder(tmp_path / "a", uneven=3.0)), PAGE)
    assert figure is not None
    assert 2 <= len(figure.legends[0].get_texts()) <= 5


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_stand_out_from_the_background(palette):
    def contrast(colour):
        a, b = sorted((luminance(colour), luminance(palette.surface)))
        return (b + 0.05) / (a + 0.05)

    assert contrast(palette.ink) > 7  # WCAG 2.1: 4.5 for text, 3 for lines
    assert contrast(palette.muted) > 4.5
    assert min(contrast(colour) for colour in palette.series) > 3
    assert all(contrast(a) < contrast(b) for a, b in zip(palette.levels, palette.levels[1:], strict=False))
