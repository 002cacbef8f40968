"""The comparison: rows, JSON, CSV, labels, and the sentence over it."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict

import pytest

from gossamer.report import as_csv, as_json, rows
from gossamer.report import format as human
from gossamer.report.headline import explanation, headline, saving
from gossamer.report.table import groups, labels
from gossamer.runs.record import read_run
from tests.support.synthetic_runs import run_folder


@pytest.fixture
def make(tmp_path):
    def make(name, **options):
        return read_run(run_folder(tmp_path / name, **options))

    return make


def plain(text):
    return text.replace("\u00a0", " ")


def test_a_row_has_the_three_numbers_and_the_bytes(make):
    (row,) = rows([make("mine")])
    assert asdict(row) == {
        "name": "mine",
        "task": "digits",
        "workers": 8,
        "algorithm": "choco",
        "compressor": "topk:0.01",
        "topology": "ring",
        "metric": "accuracy",
        "better": "higher",
        "average": 0.963,
        "local_mean": pytest.approx(0.951),
        "consensus_distance": 0.1234,
        "bytes_per_worker": 1_200_000,
        "bytes_full": 54_000_000,
        "times_fewer": pytest.approx(45),
        "seconds": 12.3,
        "clock": "measured",
        "status": "finished",
    }


def test_json_and_csv_hold_the_rows(make):
    runs = [make("a"), make('b, "quoted"', status="diverged"), make("c", summary=False, evaluate=False)]
    assert json.loads(as_json(runs)) == [asdict(row) for row in rows(runs)]
    read = list(csv.DictReader(io.StringIO(as_csv(runs))))
    assert [row["name"] for row in read] == ["a", 'b, "quoted"', "c"]
    assert [row["average"] for row in read] == ["0.963", "", ""]
    assert json.loads(as_json([])) == []
    assert as_csv([]).strip() == ""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "8 workers reached 96.3 % accuracy with 45 times fewer bytes than in full precision"),
        (
            {"sent": 54_000_000, "algorithm": "dpsgd", "compressor": None},
            "8 workers reached 96.3 % accuracy in full precision",
        ),
        (
            {"full": 600_000},
            "8 workers reached 96.3 % accuracy with 2 times more bytes than in full precision",
        ),
        ({"workers": 1, "sent": 0, "edges": [[0, 0]]}, "1 worker reached 96.3 % accuracy"),
        (
            {"changes": {"metric": "perplexity", "better": "lower", "average": {"perplexity": 31.25}}},
            "8 workers reached a perplexity of 31.25 with 45 times fewer bytes than in full precision",
        ),
        ({"status": "diverged"}, "choco topk:0.01 ring with 8 workers diverged after 330 steps"),
        (
            {"summary": False, "evaluate": False, "steps": 10},
            "choco topk:0.01 ring with 8 workers is still running after 10 steps",
        ),
    ],
)
def test_the_headline_of_one_run(make, options, sentence):
    assert plain(headline([make("mine", **options)])) == sentence


def test_the_headline_of_several_is_the_fewest_bytes_near_the_best(make):
    runs = [
        make("full", sent=54_000_000, algorithm="dpsgd", compressor=None, top=0.967),
        make("good"),
        make("bad", top=0.5, sent=100, compressor="topk:0.0001"),
        make("broken", status="diverged", sent=10, compressor="sign"),
    ]
    assert plain(headline(runs)).startswith("8 workers reached 96.3 % accuracy with 45 times fewer")
    assert plain(explanation(runs)) == (
        "That was choco topk:0.01 ring: a worker sent 1.2 MB. "
        "The best of 4 runs, dpsgd ring, reached 96.7 % with 54 MB."
    )
    assert headline(runs[3:] * 2) == "2 runs: 2 diverged"


def test_saving_is_claimed_only_where_there_is_a_result(make):
    assert "saved 52.8 MB, 98 %" in plain(saving(rows([make("a")])[0]))
    assert "saved" not in saving(rows([make("b", status="diverged")])[0])
    assert "nothing was saved" in saving(rows([make("c", full=600_000)])[0])


def test_labels_say_yes_and_no_in_words(make):
    runs = [make("a", batch_size=8), make("b", batch_size=16), make("c", compressor="sign", nesterov=True)]
    runs.append(make("d", compressor="sign", nesterov=False))
    assert [label.split(", ")[1] for label in labels(runs)] == [
        "batch size 8",
        "batch size 16",
        "nesterov",
        "not nesterov",
    ]


def test_labels_are_different_and_say_why(make):
    other = make("b", algorithm="dpsgd", compressor=None)
    runs = [make("a", seed=0), other, make("c"), make("d", lr=0.2), make("e", lr=0.2)]
    assert labels(runs) == [
        "choco topk:0.01 ring, lr 0.1 (a)",
        "dpsgd ring",
        "choco topk:0.01 ring, lr 0.1 (c)",
        "choco topk:0.01 ring, lr 0.2 (d)",
        "choco topk:0.01 ring, lr 0.2 (e)",
    ]
    assert len(set(labels([runs[0]] * 3))) == 3


def test_only_runs_of_one_task_and_metric_share_axes(make):
    runs = [
        make("early", summary=False, evaluate=False),
        make("a"),
        make("b", changes={"metric": "test loss"}),
        make("c", task="other"),
    ]
    assert groups(runs) == {
        ("digits", "accuracy"): [0, 1],
        ("digits", "test loss"): [2],
        ("other", "accuracy"): [3],
    }


@pytest.mark.parametrize(
    ("function", "x", "text"),
    [
        (human.size, 0, "0 B"),
        (human.size, 999, "999 B"),
        (human.size, 999_999, "1 MB"),
        (human.size, 12_345_678, "12.3 MB"),
        (human.size, 123_456, "123 kB"),
        (human.size, None, "–"),
        (human.duration, 0.0123, "0.012 s"),
        (human.duration, 12.34, "12.3 s"),
        (human.duration, 59.97, "1 min"),
        (human.duration, 65, "1 min 5 s"),
        (human.duration, 3599.8, "1 h"),
        (human.duration, 7380, "2 h 3 min"),
        (human.duration, 86_399, "1 d"),
        (human.duration, 100_000, "1 d 4 h"),
        (human.number, 0.03791234, "0.03791"),
        (human.number, -1.5, "−1.5"),
        (human.number, 1e-5, "10⁻⁵"),
        (human.number, 2.5e-7, "2.5 × 10⁻⁷"),
        (human.number, 1_234_567, "1 234 567"),
        (human.number, float("nan"), "–"),
        (human.number, "text", "–"),
        (human.times, 45.2, "45"),
        (human.times, 1.3, "1.3"),
        (human.times, 1234.0, "1 234"),
    ],
)
def test_numbers_for_people(function, x, text):
    assert plain(function(x)) == text


def test_only_shares_are_in_per_cent():
    assert plain(human.measure("accuracy", 0.9634)) == "96.3 %"
    assert human.measure("test loss", 0.9634) == "0.9634"
