"""gossamer topology, compressors and algorithms: their numbers, checked by other means, and their looks."""

from __future__ import annotations

import inspect
import json
import math
import re
import sys

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner

import gossamer
from gossamer.cli import catalogue, topology
from gossamer.compress import Compressor
from gossamer.compress.layout import Layout
from gossamer.topology import Topology

app = typer.Typer()
for command in (topology.topology, catalogue.compressors, catalogue.algorithms, catalogue.topologies):
    app.command()(command)


def run(*arguments, columns=80, charset="utf-8"):
    runner = CliRunner(charset=charset, env={"COLUMNS": str(columns), "NO_COLOR": "1"})
    result = runner.invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def data(*arguments):
    return json.loads(run(*arguments, "--json"))


def test_the_numbers_of_a_ring():
    ring = data("topology", "ring", "--n", "16")
    left = (1 + 2 * math.cos(2 * math.pi / 16)) / 3  # the second eigenvalue of the circulant 1/3, 1/3, 1/3
    assert ring["gap"] == pytest.approx(1 - left)
    assert ring["rounds_to_halve"] == pytest.approx(math.log(2) / -math.log(left))
    assert ring["diameter"] == 8
    assert ring["degree"] == {"min": 2, "mean": 2, "max": 2}
    assert ring["messages_per_round"] == 32
    assert ring["most_bytes_per_worker"]["identity"] == 2 * (4_000_000 + 16)
    assert sorted(map(sorted, ring["edges"][0])) == sorted(sorted((i, (i + 1) % 16)) for i in range(16))
    assert ring["weights"] == "metropolis"
    assert not ring["varying"]
    assert data("topology", "--workers", "16") == ring


def test_disagreement_halves_in_as_many_rounds_as_are_told():
    chain = data("topology", "chain", "--n", "12")
    graph = gossamer.topology.make("chain", 12)
    assert isinstance(graph, Topology)
    slowest = np.linalg.eigh(graph.W)[1][:, -2]
    left = np.linalg.matrix_power(graph.W, 100) @ slowest
    assert np.linalg.norm(left) == pytest.approx(0.5 ** (100 / chain["rounds_to_halve"]))


@pytest.mark.parametrize(
    ("spec", "n"), [("torus", 12), ("star", 9), ("ring@fastest", 7), ("exponential", 16)]
)
def test_the_gap_is_that_of_the_spectrum(spec, n):
    graph = gossamer.topology.make(spec, n)
    assert isinstance(graph, Topology)
    facts = data("topology", spec, "--n", str(n))
    assert facts["gap"] == pytest.approx(graph.spectrum.gap)
    assert facts["diameter"] == graph.diameter
    assert facts["weights"] == ("fastest" if "@" in spec else "metropolis")


def test_what_averages_at_once_is_told():
    assert data("topology", "complete")["rounds_to_halve"] == 0
    assert "1 round averages exactly" in run("topology", "complete")
    assert "3 rounds average exactly" in run("topology", "one-peer-exponential")


def test_graphs_that_change_show_their_first_rounds():
    text = run("topology", "one-peer-exponential")
    assert "changes, in 3 rounds that repeat" in text
    assert all(f"round {k}" in text for k in range(3))
    text = run("topology", "random-matching", "--seed", "3")
    assert "never repeat" in text
    assert "round 3" in text
    edges = data("topology", "random-matching", "--seed", "3")["edges"]
    schedule = gossamer.topology.make("random-matching", 8, seed=3)
    assert edges == [[list(edge) for edge in schedule.at(k).edges] for k in range(4)]


def test_random_matchings_mix_as_randomized_gossip_does():
    n = 10  # E[W] of a random matching has 1/2 on the diagonal, 1/(2 (n-1)) elsewhere, and W^T W = W
    left = math.sqrt(0.5 - 0.5 / (n - 1))
    assert left < 1 - data("topology", "random-matching", "--n", str(n))["gap"] < 1.25 * left


@pytest.mark.parametrize("n", [1, 2, 3, 8, 24, 25, 49, 72, 200])
@pytest.mark.parametrize("spec", ["ring", "star", "grid", "torus", "random-matching", "one-peer-exponential"])
@pytest.mark.parametrize("charset", ["utf-8", "ascii"])
def test_every_drawing_fits_in_80_columns(spec, n, charset):
    text = run("topology", spec, "--n", str(n), charset=charset)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    if n <= 24:
        drawing = text[text.index("topk") :]
        assert all(str(i) in drawing for i in range(n))


@pytest.mark.parametrize("n", [11, 16, 20, 24])
@pytest.mark.parametrize("seed", range(3))
def test_no_worker_is_hidden_where_springs_decide(n, seed):
    drawing = run("topology", "random-regular:4", "--n", str(n), "--seed", str(seed)).split("topk:0.01")[1]
    assert sorted(map(int, re.findall(r"\d+", drawing))) == list(range(n))


def test_links_are_drawn_where_they_are():
    picture = run("topology", "ring", "--n", "4", charset="ascii").split("topk:0.01")[1]
    lines = [line for line in picture.splitlines() if line.strip()]
    top, bottom = lines[0], lines[-1]
    assert top.strip(" .") == "0"
    assert bottom.strip(" .") == "2"
    assert all(line.count(".") >= 2 or any(c.isdigit() for c in line) for line in lines)  # both sides
    matrix = run("topology", "ring", "--n", "26", charset="ascii")
    rows = [line[2:28] for line in matrix.splitlines() if line.startswith("|")]
    marks = {" ": (0, 0), "'": (1, 0), ".": (0, 1), ":": (1, 1)}
    links = np.array([[marks[c][half] for c in row] for row in rows for half in range(2)])
    graph = gossamer.topology.make("ring", 26)
    assert isinstance(graph, Topology)
    assert np.array_equal(links > 0, np.array(graph.W > 0) & ~np.eye(26, dtype=bool))


@pytest.mark.parametrize("spec", ["torus", "one-peer-exponential", "complete"])
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_images(tmp_path, spec, suffix):
    path = tmp_path / f"graph.{suffix}"
    run("topology", spec, "--n", "6", "--image", str(path))
    assert path.read_bytes().startswith(b"\x89PNG" if suffix == "png" else b"<?xml")


def test_images_that_cannot_be_drawn(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"\.png or \.svg"):
        run("topology", "--image", str(tmp_path / "graph.doc"))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"pip install 'gossamer\[report\]'"):
        run("topology", "--image", str(tmp_path / "graph.png"))


def test_a_mistyped_name_gets_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'torus'"):
        run("topology", "tours")


def test_compressors_are_measured_with_real_messages():
    rows = data("compressors", "--size", "6000")
    layout = Layout(("matrix",), ((75, 80),))
    v = torch.randn(6000, generator=torch.Generator().manual_seed(0))
    for row in rows:
        compressor = gossamer.compress.make(row["text"])
        message = compressor.encode(v, layout)
        assert row["bytes"] == message.numel(), row["text"]
        assert row["times_smaller"] == pytest.approx(24_000 / message.numel())
        error = float((compressor.decode(message, layout) - v).norm() ** 2 / v.norm() ** 2)
        assert error <= 1.05 * (1 - row["delta"]) or row["delta"] == 0, row["text"]
    promises = {row["text"]: row["promise"] for row in rows}
    assert promises["identity"] == "exact"
    assert promises["qsgd:4"] == "unbiased"
    assert promises["topk:0.01"] == "delta 0.01"


def test_every_compressor_has_an_example():
    def kinds(kind):
        return {kind, *(k for sub in kind.__subclasses__() for k in kinds(sub))}

    ours = {
        k for k in kinds(Compressor) if k.__module__.startswith("gossamer.") and not inspect.isabstract(k)
    }
    texts = [row["text"] for row in data("compressors")]
    assert {type(gossamer.compress.make(text)) for text in texts} == ours
    assert {text.partition(":")[0] for text in texts} == set(gossamer.compress.NAMES)
    assert texts == list(dict.fromkeys(texts)), "a class with several names is listed once"


@pytest.mark.parametrize("charset", ["utf-8", "ascii"])
def test_tables_fit_in_80_columns(charset):
    for arguments in (
        ("compressors",),
        ("compressors", "--size", "100000000"),
        ("topologies",),
        ("algorithms",),
    ):
        text = run(*arguments, charset=charset)
        assert max(map(len, text.splitlines())) <= 80
    assert "https://arxiv.org/abs/1902.00340" in text
    table = run("compressors", charset=charset)
    assert all(row["text"] in table for row in data("compressors"))
    assert "50,719" in table


def test_algorithms_say_what_they_need():
    rows = {row["name"]: row for row in data("algorithms")}
    assert set(rows) == set(gossamer.algorithms.NAMES)
    assert all(row["papers"] and row["what"] for row in rows.values())
    assert rows["choco"]["papers"] == [f"https://arxiv.org/abs/{x}" for x in ("1902.00340", "1907.09356")]
    assert {name for name, row in rows.items() if row["overlap"]} == {
        "choco",
        "dpsgd",
        "powergossip",
        "naive",
    }
    assert {name for name, row in rows.items() if not row["varying_graphs"]} == {"choco", "dcd", "ecd"}
    assert {name for name, row in rows.items() if not row["directed_graphs"]} == {"powergossip"}
    assert {name for name, row in rows.items() if row["gamma"] == "auto"} == {"choco", "deepsqueeze"}
    assert {row["compressor"] for row in rows.values()} == {"needed", "possible", "none"}
    assert rows["allreduce"]["phases"] == 2 * (8 - 1)
    assert all(row["phases"] == 1 for name, row in rows.items() if name != "allreduce")


def test_topologies_are_those_that_can_be_made():
    rows = {row["name"]: row for row in data("topologies", "--n", "8")}
    assert set(rows) == set(gossamer.topology.NAMES)
    assert rows["ring"]["gap"] == pytest.approx(1 - (1 + 2 * math.cos(2 * math.pi / 8)) / 3)
    assert rows["torus"]["usage"] == "torus[:ROWSxCOLUMNS]"
    assert rows["small-world"]["usage"] == "small-world[:NEIGHBOURS][:REWIRE]"
    assert {name for name, row in rows.items() if row["varying"]} == {
        "one-peer-exponential",
        "random-matching",
    }
    assert {name for name, row in rows.items() if row["seeded"]} == {
        "random-regular",
        "small-world",
        "random-matching",
    }
    assert {name for name, row in rows.items() if row["neighbours"] is None} == {"social", "file"}
    assert all(row["what"] for row in rows.values())
    assert "small-world[:NEIGHBOURS][:REWIRE]" in run("topologies")


@pytest.mark.parametrize(
    ("flag", "names"),
    [
        ("algorithm", gossamer.algorithms.NAMES),
        ("compressor", gossamer.compress.NAMES),
        ("topology", gossamer.topology.NAMES),
    ],
)
def test_the_help_names_everything(flag, names):
    from gossamer.cli.flags import HELP

    assert HELP[flag][1].startswith(", ".join(names.ours))
    assert len(names.ours) >= 8
