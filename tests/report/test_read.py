"""Runs from their folders: finished, running, killed, and folders that are no runs."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from gossamer.runs import RunFolder, Summary, simulate
from gossamer.runs.files import read_lines
from gossamer.runs.record import read_run
from tests.support.small import small
from tests.support.synthetic_runs import CONFIG, run_folder


def test_made_up_folders_are_what_the_product_writes(tmp_path):
    """Every file can be read by the product itself, and has every field of today and no other."""
    folder = RunFolder(run_folder(tmp_path / "mine", workers=4, lr=0.2))
    assert folder.config() == replace(CONFIG, workers=4, lr=0.2)
    assert set(json.loads((folder.path / "summary.json").read_text())) == {f.name for f in fields(Summary)}
    assert folder.summary().workers == 4
    real = simulate(small(), tmp_path / "real")
    environments = [
        json.loads((path / "environment.json").read_text()) for path in (folder.path, tmp_path / "real")
    ]
    assert environments[0].keys() == environments[1].keys()
    made_up = folder.summary().average
    assert real.average is not None
    assert made_up is not None
    assert real.average.keys() == made_up.keys()
    for kind in ("train", "evaluation"):
        made, written = (
            next(line for line in read_lines(path / "metrics" / "worker-0.jsonl") if line["kind"] == kind)
            for path in (folder.path, tmp_path / "real")
        )
        assert made.keys() == written.keys()


def append(folder, worker, text):
    with (folder / "metrics" / f"worker-{worker}.jsonl").open("a") as file:
        file.write(text)


def test_a_finished_run(tmp_path):
    run = read_run(run_folder(tmp_path / "mine"))
    assert (run.name, run.label) == ("mine", "choco topk:0.01 ring")
    assert run.config["lr"] == 0.1
    assert run.environment["torch"] == "2.13.0"
    assert run.summary.status == "finished"
    assert sorted(run.train) == list(range(8))
    assert [line["step"] for line in run.train[3]] == list(range(5, 331, 5))
    assert [line["step"] for line in run.evaluations] == list(range(11, 331, 11))


def test_a_run_without_a_summary_is_running_with_what_its_lines_say(tmp_path):
    run = read_run(run_folder(tmp_path / "mine", summary=False, steps=33, sent=3300, seconds=6.6))
    s = run.summary
    assert (s.status, s.metric, s.workers, s.steps) == ("running", "accuracy", 8, 33)
    assert s.better is None  # the task knows it, its lines do not
    assert s.bytes_sent == (3300,) * 8
    assert s.average == run.evaluations[-1]["average"]
    assert s.seconds == pytest.approx(6.6)


def test_what_a_summary_leaves_out_comes_from_the_lines(tmp_path):
    folder = run_folder(tmp_path / "mine", steps=33, sent=3300)
    (folder / "summary.json").write_text('{"status": "interrupted", "parameters": 7}')
    run = read_run(folder)
    assert (run.summary.status, run.summary.parameters, run.summary.steps) == ("interrupted", 7, 33)


def test_a_half_written_line_is_ignored(tmp_path):
    folder = run_folder(tmp_path / "mine")
    before = read_run(folder)
    append(folder, 0, '{"kind":"train","step":335,"lo')
    append(folder, 2, '{"kind":"train","step":335,"loss":0.1}\n{"kind":"tr')
    after = read_run(folder)
    assert after.train[0] == before.train[0]
    assert after.train[2][:-1] == before.train[2]
    assert after.train[2][-1]["step"] == 335


def test_steps_that_were_done_again_count_the_second_time(tmp_path):
    folder = run_folder(tmp_path / "mine", steps=20)
    append(folder, 0, '{"kind":"train","step":10,"loss":7.0}\n{"kind":"train","step":15,"loss":8.0}\n')
    assert [(line["step"], line["loss"]) for line in read_run(folder).train[0][1:]] == [(10, 7.0), (15, 8.0)]


def test_bytes_of_an_evaluation_are_the_mean_of_all_workers(tmp_path):
    folder = run_folder(tmp_path / "mine", workers=2, steps=11)
    for worker, sent in enumerate((100, 300)):
        line = {"kind": "evaluation", "step": 22, "bytes_sent": sent, "local": {}}
        append(folder, worker, json.dumps(line) + "\n")
    assert read_run(folder).evaluations[-1]["bytes_mean"] == 200


def test_a_run_that_has_only_begun(tmp_path):
    (tmp_path / "config.json").write_text('{"task": "digits", "workers": 4, "algorithm": "dpsgd"}')
    run = read_run(tmp_path)
    assert (run.summary.status, run.summary.workers, run.label) == ("running", 4, "dpsgd")
    assert run.train == {}
    assert run.evaluations == []


def test_a_broken_summary_is_no_summary(tmp_path):
    folder = run_folder(tmp_path / "mine")
    (folder / "summary.json").write_text('{"status": "fini')
    assert read_run(folder).summary.status == "running"


@pytest.mark.parametrize(("content", "message"), [("{", "cannot be read"), ("[1]", "holds a list")])
def test_broken_settings_name_the_file(tmp_path, content, message):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match=rf"config\.json.*{message}"):
        read_run(tmp_path)


def test_no_run_says_what_a_run_holds(tmp_path):
    with pytest.raises(
        ValueError, match=r"has no config\.json; a run is a folder with config\.json, .*jsonl"
    ):
        read_run(tmp_path)
    with pytest.raises(ValueError, match="is no folder"):
        read_run(tmp_path / "nothing")
