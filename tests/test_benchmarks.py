"""What benchmarks make of their measurements, and that the pages show what was measured."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks import adamw, adamw_page, choco_table, choco_table_page, mesh_pages
from benchmarks.pages import fill, number, table
from benchmarks.peers.crowd import Outcome
from benchmarks.peers.model import predicted
from benchmarks.peers.worker import affordable
from benchmarks.record import RESULTS, ROOT, Lines, NotMeasuredError, commit, one_row_a_line, read
from benchmarks.slow_networks import __main__ as slow_networks
from benchmarks.slow_networks import page as slow_networks_page
from benchmarks.slow_networks.plan import PROBLEMS, Goal
from benchmarks.slow_networks.results import beyond_the_limit, early, learned, ratios
from torch.nn.functional import cross_entropy

from gossamer.network.links import OVERHEAD, Network
from gossamer.runs import Config
from gossamer.runs.training.learner import own_randomness
from gossamer.tasks.models import GPT


def test_the_first_step_that_is_good_enough_with_the_best_learning_rate():
    def line(*metrics):
        return {"curve": [{"step": 10 * k, "metric": m} for k, m in enumerate(metrics, 1)]}

    lines = {
        "curve|P|M|0.1": line(0.5, 0.79, 0.8, 0.7),
        "curve|P|M|0.3": line(0.5, 0.81, 0.7, 0.7),
        "curve|P|M|1.0": {"failed": True},
    }
    found = learned(lines, "P", "M", Goal(0.8, "higher"), (0.1, 0.3, 1.0))
    assert found == {"lr": 0.3, "steps": 20, "steps by lr": {0.1: 30, 0.3: 20}}
    assert learned(lines, "P", "M", Goal(0.4, "lower"), (0.1, 0.3, 1.0))["steps"] is None


def test_the_limit_is_the_slower_of_computing_and_sending():
    assert beyond_the_limit(0.5, 0.1, 12_500, "1mbit", "20ms") == pytest.approx(0.5 - 0.12)
    assert beyond_the_limit(0.5, 0.3, 12_500, "1mbit", "20ms") == pytest.approx(0.2)
    assert beyond_the_limit(0.5, 0.1, 12_500, "unlimited", "0ms") == pytest.approx(0.4)


def test_ratios_compare_the_best_of_each_kind():
    def row(*times):
        return {"time": sorted(times)[len(times) // 2] if times else None}

    rows = {
        "no communication": row() | {"seconds": 0.5},
        "DDP": row(90, 100, 110) | {"seconds": 10.0},
        "DDP, fp16 hook": row(60, 50, 55),
        "DDP, PowerSGD hook, rank 1": row(),
        "averaging every 4 steps": row(22, 22, 33),
        "CHOCO, sign": row(10, 11, 12),
        "D-PSGD": row(80, 81, 82),
        "D-PSGD, overlap 1": row(77, 76, 78),
        "all-reduce, 8 bits": row(44, 45, 43),
    }
    found = ratios(rows)
    assert found == {
        "Gossamer's best": "CHOCO, sign",
        "DDP without a network": 20.0,
        "sooner than": {
            "DDP": {"method": "DDP", "times": pytest.approx(100 / 11)},
            "best hook": {"method": "DDP, fp16 hook", "times": pytest.approx(5)},
            "best of all else": {"method": "averaging every 4 steps", "times": pytest.approx(2)},
            "D-PSGD": {"method": "D-PSGD, overlap 1", "times": pytest.approx(7)},
            "quantized": {"method": "all-reduce, 8 bits", "times": pytest.approx(4)},
        },
    }


def test_a_step_takes_from_the_first_start_to_the_last_end():
    def mark(step, time, sent, cpu):
        return {"step": step, "time": time, "bytes": sent, "cpu": cpu}

    answers = [
        [mark(4, 10.0, 100, 1.0), mark(14, 19.0, 1100, 2.0)],
        [mark(4, 11.0, 0, 1.0), mark(14, 20.0, 3000, 4.0)],
    ]
    found = Outcome(answers, Path(), 0).speed()
    assert found == {"seconds": 1.0, "bytes": 200.0, "cpu seconds": pytest.approx(0.2), "steps": 10}


def test_snapshots_are_judged_until_some_in_a_row_are_good_enough(tmp_path):
    config = Config(task="digits", steps=1)
    model = config.make_task().model()
    start = torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy()
    (tmp_path / "snapshots").mkdir()
    steps = range(10, 80, 10)
    for step in steps:
        for rank, factor in enumerate((0, 2)):  # the average is the start, to the last bit
            np.save(tmp_path / "snapshots" / f"0-{step}-{rank}.npy", start * np.float32(factor))
    marks = [{"step": 0, "time": 5.0}, *({"step": step, "time": 5.0 + step} for step in steps)]
    outcome = Outcome([[*marks, marks[-1]]] * 2, tmp_path, 0)
    found = outcome.curve(config, lambda metric: metric >= 0)
    expected = config.make_task().evaluate(model)["accuracy"]
    assert found == [
        {"step": s, "seconds": float(s), "metric": pytest.approx(expected)} for s in (10, 20, 30, 40)
    ]
    assert not list((tmp_path / "snapshots").iterdir())


def test_whole_periods_are_measured_for_as_long_as_is_affordable():
    assert affordable(seconds=0.1, period=1, budget=3.0) == 30
    assert affordable(seconds=0.4, period=4, budget=2.5) == 28
    assert affordable(seconds=1.0, period=1, budget=3.0) == 8
    assert affordable(seconds=12.0, period=1, budget=3.0) == 2
    assert affordable(seconds=12.0, period=4, budget=3.0) == 4
    assert affordable(seconds=0.001, period=1, budget=3.0) == 200


def test_what_the_clock_predicts_for_a_ring():
    """D-PSGD sends the model to two neighbours: 8 d bytes a worker and step, and two latencies for gloo."""
    config = Config(task="digits", algorithm="dpsgd", workers=4, steps=1)
    network = Network.uniform(4, "10mbit", "20ms")
    size = sum(p.numel() for p in config.make_task().model().parameters())
    wire = 2 * 4 * size * 8 * OVERHEAD / 10e6
    assert predicted(config, None, network, 0.05) == pytest.approx(0.05 + 0.04 + wire, rel=0.01)
    overlapped = Config(task="digits", algorithm="dpsgd", workers=4, steps=1, overlap=True)
    assert predicted(overlapped, None, network, 0.05) == pytest.approx(max(0.05, 0.04 + wire), rel=0.01)


def test_some_methods_make_no_results(tmp_path, monkeypatch):
    """They are measured and kept, but there is nothing to compare them with."""
    written = (RESULTS / "slow_networks.json").read_bytes()
    flags = f"--parts --problems GPT --methods DDP --cache {tmp_path / 'runs.jsonl'}"
    monkeypatch.setattr("sys.argv", ["slow_networks", *flags.split()])
    with pytest.raises(SystemExit, match="they compare all methods"):
        slow_networks.main()
    assert (RESULTS / "slow_networks.json").read_bytes() == written


def test_lines_are_kept_and_found_again(tmp_path):
    path = tmp_path / "made" / "when needed" / "runs.jsonl"
    Lines("x", path).add({"key": "a", "value": 1})
    Lines("x", path).add({"key": "b", "value": 2})
    assert Lines("x", path).lines["b"] == {"key": "b", "value": 2, "commit": commit()}
    assert len(Lines("x", path).lines) == 2
    with pytest.raises(
        NotMeasuredError, match=r"runs.jsonl has no line 'c': measure it with python -m benchmarks.x$"
    ):
        Lines("x", path).lines["c"]


def test_lines_of_the_history_are_found_by_todays_names(tmp_path):
    path = tmp_path / "runs.jsonl"
    keys = (
        "curve|GPT|CHOCO, sign, late by 2, every 2 steps|0.01",
        "speed|CNN|no limit|D-PSGD, late|0",
        "x|y",
    )
    path.write_text("".join(json.dumps({"key": key}) + "\n" for key in keys))
    assert list(Lines("x", path).lines) == [
        "curve|GPT|CHOCO, sign, overlap 2, every 2 steps|0.01",
        "speed|CNN|no limit|D-PSGD, overlap 1|0",
        "x|y",
    ]


def test_without_raw_lines_it_says_where_they_are(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["choco_table", "--write", "--cache", str(tmp_path / "runs.jsonl")])
    where = f"git show {read('choco_table')['raw lines']['commit']}:docs/results/.* > {tmp_path}"
    with pytest.raises(SystemExit, match=f"measure it with python -m benchmarks.choco_table, or.* {where}"):
        choco_table.main()


def test_a_row_a_line():
    rows = [{"name": "a", "values": [1, 2.5], "more": {"x": {"y": None}}}, {"name": "b", "values": ()}]
    record = {"command": "c", "raw": {"path": "p"}, "results": {"n": 1, "m": {"k": rows[0]}, "rows": rows}}
    written = one_row_a_line(record)
    assert json.loads(written) == json.loads(json.dumps(record))
    row = '{"name": "a", "values": [1, 2.5], "more": {"x": {"y": null}}}'
    assert written.splitlines() == [
        "{",
        ' "command": "c",',
        ' "raw": {"path": "p"},',
        ' "results": {',
        '  "n": 1,',
        '  "m": {',
        f'   "k": {row}',
        "  },",
        '  "rows": [',
        f"   {row},",
        '   {"name": "b", "values": []}',
        "  ]",
        " }",
        "}",
    ]


def test_results_are_short_and_say_where_they_come_from():
    """A row a line, and only what pages quote: the lines behind them stay out of the tree."""
    texts = {path.name: path.read_text() for path in RESULTS.iterdir()}
    for name, text in texts.items():
        assert name.endswith(".json"), f"{name}: raw lines belong into runs/benchmarks"
        record = json.loads(text)
        assert record["command"].startswith("python -m benchmarks."), name
        assert re.fullmatch(r"[0-9a-f]{7,40}\+?", record["commit"]), name
        assert one_row_a_line(record) == text, f"{name} was not written by benchmarks.record"
    assert sum(text.count("\n") for text in texts.values()) <= 1300
    assert sum(map(len, texts.values())) <= 250_000


@pytest.mark.parametrize("name", ["adamw", "choco_table", "slow_networks"])
def test_raw_lines_are_in_the_history(name, tmp_path):
    raw = read(name)["raw lines"]
    words = ["git", "show", f"{raw['commit']}:{raw['path']}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("the history is not here")
    assert hashlib.sha256(done.stdout).hexdigest() == raw["sha256"]
    if name == "slow_networks":
        (tmp_path / "runs.jsonl").write_bytes(done.stdout)
        lines, results = Lines(name, tmp_path / "runs.jsonl").lines, read(name)["results"]
        assert early(lines) == results["early"]
        for problem, task in results["tasks"].items():
            goal, grid = PROBLEMS[problem].goal, PROBLEMS[problem].grid
            found = {method: learned(lines, problem, method, goal, grid) for method in task["learned"]}
            assert json.loads(json.dumps(found)) == task["learned"]


def test_pages():
    text = fill("before <!-- x --> old <!-- end --> after", "x", "new")
    assert text == "before <!-- x -->\n\nnew\n\n<!-- end --> after"
    assert fill(text, "x", "new") == text
    with pytest.raises(ValueError, match="no place for y"):
        fill(text, "y", "new")
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | ---: |\n| 1 | 2 |"
    assert [number(x) for x in (None, 0.01234, 12.345, 1234.5, 3)] == ["–", "0.0123", "12.3", "1234", "3"]


def test_the_pages_of_the_comparison_show_its_results():
    for path, filled in slow_networks_page.PAGES.items():
        written = path.read_text(encoding="utf-8")
        assert filled(written, read("slow_networks")) == written


def test_the_page_of_the_study_shows_its_results():
    written = choco_table_page.PAGE.read_text(encoding="utf-8")
    assert choco_table_page.page(written, read("choco_table")) == written


def test_the_page_of_failures_shows_its_results():
    written = mesh_pages.PAGE.read_text(encoding="utf-8")
    assert mesh_pages.page(written) == written


@own_randomness()
def test_all_reduce_stands_for_ddp(tmp_path, monkeypatch):
    """DDP is one AdamW that steps with the clipped gradient of all workers' batches together."""
    for name, value in (("STEPS", 4), ("WARMUP", 1), ("BLOCK", 16), ("BATCH", 4), ("CLIP", 0.5)):
        monkeypatch.setattr(adamw, name, value)
    path = tmp_path / "text.txt"
    path.write_text("To be, or not to be, that is the question. " * 40)
    text = adamw.Text(path)
    torch.manual_seed(3)
    model = GPT(text.characters, 16)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99))
    for step, factor in enumerate((1.0, 1.0, 0.775, 0.325)):  # 0.1 + 0.9 (1 + cos(pi k / 3)) / 2
        x, y = (torch.cat(parts) for parts in zip(*(text.batch(3, step, r) for r in range(4)), strict=True))
        optimizer.zero_grad()
        cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
        assert torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5) > 0.5, "nothing was clipped"
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * factor
        optimizer.step()
    expected = text.validation_loss(model)
    found = adamw.train(text, ("all-reduce, which is DDP", 3))["validation loss"]
    alone = adamw.train(text, ("one worker alone", 3))["validation loss"]
    assert abs(found - expected) < 0.1 * abs(alone - expected), "as near as rounding lets it"


def test_the_table_of_adamw_compares_with_its_first_row():
    def run(loss, sent):
        return {"validation loss": loss, "bytes a worker": sent}

    methods = {"DDP": [run(2.0, 9.8e8), run(2.2, 9.8e8)], "gossip": [run(2.25, 4.12e7), run(2.35, 4.12e7)]}
    assert adamw_page.results_table(methods).splitlines()[2:] == [
        "| DDP | 2.000 / 2.200 | +0.000 | 980 |",
        "| gossip | 2.250 / 2.350 | +0.200 | 41.2 |",
    ]


def test_the_page_shows_the_results_with_the_hyper_parameters_of_ddp():
    written = adamw_page.PAGE.read_text(encoding="utf-8")
    assert adamw_page.page(written, read("adamw"), read("slow_networks")) == written
