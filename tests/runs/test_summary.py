"""The summary as a value and as a file: both say the same, also to older and newer versions."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from gossamer.runs import RunFolder, read_run, simulate
from gossamer.runs.summary import Graph, Link, Partition, Summary
from tests.support.small import small

DOCUMENT = Path(__file__).parents[2] / "docs" / "runs.md"
WHOLE = Summary(
    status="finished",
    metric="accuracy",
    workers=2,
    steps=7,
    average={"accuracy": 0.5, "test loss": None},
    local_mean={"accuracy": 0.25},
    bytes_sent=(100, 300),
    bytes_evaluating=(10, 30),
    links=(Link(0, 1, 100), Link(1, 0, 300)),
    bytes_full=1000,
    partition=Partition("iid", ((1, 2), (3, 4))),
    graph=Graph(((0, 1),), gap=1.0, diameter=1),
)


@pytest.mark.parametrize("summary", [Summary(), WHOLE])
def test_a_file_holds_the_summary_whole(summary):
    text = json.dumps(summary.to_json(), allow_nan=False)
    assert Summary.from_json(json.loads(text)) == summary
    assert set(json.loads(text)) == {field.name for field in fields(Summary)}


def test_what_the_numbers_come_to():
    assert (WHOLE.reached, WHOLE.reached_locally) == (0.5, 0.25)
    assert (WHOLE.bytes_per_worker, WHOLE.bytes_evaluating_per_worker) == (200.0, 20.0)
    assert WHOLE.times_fewer == 5.0
    assert (Summary().reached, Summary().bytes_per_worker, Summary().times_fewer) == (None, None, None)
    assert replace(WHOLE, bytes_sent=(0, 0)).times_fewer is None


def test_a_newer_versions_fields_are_passed_over_and_missing_ones_are_unknown():
    given = {"status": "finished", "steps": 5, "colour": "blue", "graph": {"edges": [[0, 1]], "shape": "o"}}
    assert Summary.from_json(given) == Summary("finished", steps=5, graph=Graph(((0, 1),)))
    assert Summary.from_json({}) == Summary()


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"steps": "many"}, "steps is 'many', not a whole number"),
        ({"steps": True}, "steps is True, not a whole number"),
        ({"seconds": "3"}, "seconds is '3', not a number"),
        ({"task": 3}, "task is 3, not text"),
        ({"average": [0.5]}, "average is [0.5], not an object"),
        ({"average": {"accuracy": "good"}}, "average.accuracy is 'good', not a number"),
        ({"bytes_sent": [1, None]}, "bytes_sent is [1, None], not a list of whole numbers"),
        ({"links": [[0, 1]]}, "links is [[0, 1]], not rows of 3 numbers"),
        ({"graph": {"edges": [0]}}, "graph.edges is 0, not a list of whole numbers"),
        ({"graph": {"diameter": 1.5}}, "graph.diameter is 1.5, not a whole number"),
    ],
)
def test_a_value_that_cannot_be_meant_is_named(tmp_path, wrong, complaint):
    with pytest.raises(ValueError, match=re.escape(complaint)):
        Summary.from_json(wrong)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "summary.json").write_text(json.dumps(wrong))
    with pytest.raises(ValueError, match=r"summary\.json cannot be read: .* not "):
        read_run(tmp_path)


def test_the_document_describes_every_field():
    section = DOCUMENT.read_text(encoding="utf-8").split("## summary.json")[1].split("\n## ")[0]
    first_cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    assert re.findall(r"`(\w+)`", " ".join(first_cells)) == [field.name for field in fields(Summary)]


def test_a_run_says_from_its_start_which_way_its_metric_is_better(tmp_path, monkeypatch):
    """So a run that is watched, or was killed, needs no guess from its metric's name."""
    seen = []
    write = RunFolder.write_summary

    def seeing(folder, summary):
        seen.append(summary)
        write(folder, summary)

    monkeypatch.setattr(RunFolder, "write_summary", seeing)
    returned = simulate(small(steps=2), tmp_path / "run")
    begun = next(summary for summary in seen if summary.task)
    assert (begun.status, begun.metric, begun.better, begun.steps) == ("running", "accuracy", "higher", None)
    assert seen[-1] == returned == RunFolder(tmp_path / "run").summary()


def test_a_folder_of_an_older_version_is_read(tmp_path):
    """As version 0.2.0 wrote it before the evaluations' bytes were counted: null, text and lists alone."""
    simulate(small(steps=2), tmp_path / "run")
    path = tmp_path / "run" / "summary.json"
    older = json.loads(path.read_text())
    del older["bytes_evaluating"]
    path.write_text(json.dumps(older))
    read = read_run(tmp_path / "run").summary
    assert read.bytes_evaluating is None
    assert read.bytes_sent == tuple(older["bytes_sent"])
