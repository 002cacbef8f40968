"""The commands that make and show runs, from the outside: what they say, and how they end."""

from __future__ import annotations

import json

import pytest

from gossamer.cli import main as cli
from gossamer.runs import RunFolder
from tests.support.small import FILE

SMALL = ["--task", FILE, "--workers", "3", "--batch-size", "4", "--steps", "6", "--quiet"]
CHOCO = [*SMALL, "--gamma", "0.2"]  # a search would take longer than the run


@pytest.mark.slow
def test_simulate_report_export(gossamer, tmp_path):
    code, said = gossamer("simulate", *CHOCO, "--bandwidth", "1mbit", "--latency", "5ms", "--compute", "1ms")
    assert code == 0, said
    assert "runs/small-choco-1" in said
    assert "modelled on a network of 1 Mbit/s, 5 ms" in said
    code, said = gossamer("report", "runs/small-choco-1", "--plots", "figures")
    assert code == 0, said
    assert (tmp_path / "runs/small-choco-1/report.html").exists()
    assert {path.suffix for path in (tmp_path / "figures").iterdir()} == {".png", ".svg"}
    assert gossamer("export", "runs/small-choco-1", "model.safetensors")[0] == 0
    code, said = gossamer("report", "runs/small-choco-1", "--json")
    assert json.loads(said)[0]["compressor"] == "topk:0.01"


def test_a_split_is_a_compressor_and_no_setting(gossamer, tmp_path):
    code, said = gossamer("compare", "choco split:*.bias=identity,*=sign gamma=0.2", *SMALL, "--out", "cmp")
    assert code == 0, said
    (run,) = tmp_path.glob("cmp/*/config.json")
    assert RunFolder(run.parent).config().compressor == "split:*.bias=identity,*=sign"
    assert set(run.parent.name).isdisjoint("*:/")


@pytest.mark.slow
def test_compare(gossamer, tmp_path):
    words = [
        "compare",
        "choco topk:0.3 gamma=0.2",
        "dcd qsgd:8 complete",
        "dpsgd lr=1e9",
        *SMALL,
        "--out",
        "cmp",
    ]
    code, said = gossamer(*words)
    assert code == 0, said
    assert said.count("finished") == 2
    assert said.count("diverged") == 1
    statuses = {
        path.parent.name: json.loads(path.read_text())["status"]
        for path in tmp_path.glob("cmp/*/summary.json")
    }
    assert statuses == {
        "choco-topk-0.3-gamma=0.2": "finished",
        "dcd-qsgd-8-complete": "finished",
        "dpsgd-lr=1e9": "diverged",
    }
    assert (tmp_path / "cmp/report.html").exists()
    assert RunFolder(tmp_path / "cmp/dcd-qsgd-8-complete").config().topology == "complete"
    before = (tmp_path / "cmp/dcd-qsgd-8-complete/summary.json").stat().st_mtime_ns
    assert gossamer(*words)[0] == 0
    assert (tmp_path / "cmp/dcd-qsgd-8-complete/summary.json").stat().st_mtime_ns == before
    code, said = gossamer(*words, "--seed", "5")
    assert code == 1
    assert "seed = 0, not 5" in said


@pytest.mark.slow
def test_compare_from_a_file(gossamer, tmp_path):
    (tmp_path / "methods.toml").write_text(
        f"""
        [defaults]
        task = "{FILE}"
        workers = 3
        batch_size = 4
        steps = 4

        [[runs]]
        name = "careful"
        algorithm = "choco"
        compressor = "sign"
        gamma = 0.1

        [[runs]]
        algorithm = "allreduce"
        lr = 0.05
        """
    )
    code, said = gossamer("compare", "--file", "methods.toml", "--out", "cmp", "--quiet", "--steps", "5")
    assert code == 0, said
    config = RunFolder(tmp_path / "cmp/careful").config()
    assert (config.gamma, config.steps, config.compressor) == (0.1, 5, "sign")
    assert RunFolder(tmp_path / "cmp/allreduce").config().lr == 0.05


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["train", "--algorithm", "chico"], "did you mean 'choco'"),
        (["train", "--compressor", "topk:7"], "above 0 and at most 1"),
        (["train", "--topology", "torus:3x3", "--workers", "7"], "9 workers, not 7"),
        (["train", "--task", "digts"], "did you mean 'digits'"),
        (["train", "--task", "nix.py"], "there is no file"),
        (["train", "--task", "fashion", "--data", "nowhere"], "dataset-fashion-mnist"),
        (["train", "--task", "cifar10"], "--data"),
        (["train", "--gamma", "much"], "a number, or auto"),
        (["train", "--option", "sub_steps"], "name=value"),
        (["train", "--epochs", "1", "--steps", "2"], "not both"),
        (["train", "--workers", "100", "--batch-size", "100"], "fewer workers or smaller batches"),
        (["train", "--resume", "nix"], "no run"),
        (["train", "--at-step", "5"], "--resume"),
        (["train", "--partition", "dirichlet"], "dirichlet:0.1"),
        (["simulate", "--bandwidth", "10mbps"], "mbit"),
        (["simulate", "--network", "nix.toml"], "nix.toml"),
        (["compare"], "nothing to compare"),
        (["compare", "choco sgn"], "did you mean 'sign'"),
        (["compare", "dpsgd lrr=1"], "did you mean 'lr'"),
        (["report", "nix"], "is no run"),
        (["topology", "rign"], "did you mean 'ring'"),
    ],
)
def test_mistakes_end_in_one_line(gossamer, tmp_path, words, complaint):
    code, said = gossamer(*words)
    assert code == 1, said
    assert said.startswith("error: ")
    assert complaint in said
    assert "Traceback" not in said
    assert not (tmp_path / "runs").exists()


def test_runs_are_not_mixed_up(gossamer):
    assert gossamer("simulate", *CHOCO, "--out", "run")[0] == 0
    code, said = gossamer("simulate", *CHOCO, "--out", "run")
    assert (code, "already holds a run" in said) == (1, True)
    code, said = gossamer("train", "--resume", "run")
    assert (code, "modelled" in said) == (0, True), "it has finished: nothing is trained again"
    code, said = gossamer("simulate", "--resume", "run", "--lr", "0.5")
    assert (code, "lr = 0.1, not 0.5" in said) == (1, True)
    assert gossamer("simulate", "--resume", "run", "--lr", "0.1")[0] == 0


def test_what_may_change_on_the_way_changes(gossamer, tmp_path):
    assert gossamer("simulate", *CHOCO, "--out", "a b", "--checkpoint-every", "1")[0] == 0
    summary = tmp_path / "a b" / "summary.json"
    summary.write_text(summary.read_text().replace('"finished"', '"interrupted"'))
    code, said = gossamer("simulate", "--resume", "a b", "--keep", "5", "--quiet")
    assert (code, "gossamer report 'a b'" in said) == (0, True)
    assert RunFolder(tmp_path / "a b").config().keep == 5
    code, said = gossamer("simulate", "--resume", "a b", "--at-step", "3")
    assert (code, "nothing to resume" in said) == (1, True)
    code, said = gossamer("simulate", "--resume", "a b", "--algorithm", "dpsgd")
    assert "algorithm = choco, not dpsgd" in said


def test_comparisons_that_cannot_be_meant(gossamer, tmp_path):
    for text, complaint in {
        "[runs]\nalgorithm = 'choco'": "two brackets",
        "[[runs]]\ncompressor = 'sign'": "no algorithm",
        "[[runs]]\nalgorithm = ['choco']": "give one value",
        "[[runs]]\nalgorithm = 'choco'\nlrr = 1": "did you mean 'lr'",
        "[[runs]]\nalgorithm = 'choco'\nworkers = 3.5": "a whole number",
        "[[runs]]\nalgorithm = 'choco'\nnesterov = 'on'": "true or false",
        "[[runs]]\nalgorithm = 'choco'\noverlap = 'on'": "a whole number",
        "[[rums]]\nalgorithm = 'choco'": "did you mean 'runs'",
        "nonsense": "is not TOML",
        "[[runs]]\nalgorithm = 'dpsgd'\n[[runs]]\nalgorithm = 'dpsgd'": "two runs are called",
        "[[runs]]\nalgorithm = 'dpsgd'\n[[runs]]\nalgorithm = 'choco'\ntask = 'text'": "one task",
    }.items():
        (tmp_path / "methods.toml").write_text(text)
        code, said = gossamer("compare", "--file", "methods.toml", "--out", "cmp")
        assert (code, complaint in said) == (1, True), said


def test_a_mistake_in_a_users_file_shows_where(gossamer, tmp_path):
    (tmp_path / "mine.py").write_text("def task():\n    raise ValueError('of my own')\n")
    with pytest.raises(ValueError, match="of my own"):
        gossamer("simulate", "--task", "mine.py")


def test_the_version(gossamer):
    code, said = gossamer("--version")
    assert (code, said.startswith("gossamer 0.")) == (0, True)


def test_help_teaches(gossamer):
    for command in cli.COMMANDS:
        code, said = gossamer(command, "--help")
        assert code == 0
        assert "Example" in said, command
        assert f"gossamer {command}" in said
    assert "--batch-size" in gossamer("train", "--help")[1]
    assert "--bandwidth" not in gossamer("train", "--help")[1]


def test_tensorboard_files_are_written(gossamer, tmp_path):
    code, said = gossamer("simulate", *CHOCO, "--out", "run", "--tensorboard")
    assert code == 0, said
    assert list((tmp_path / "run/tensorboard").glob("events.*"))


def test_no_heading_of_the_table_is_cut(gossamer, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert gossamer("simulate", *CHOCO)[0] == 0
    code, said = gossamer("report", "runs/small-choco-1")
    assert code == 0, said
    assert "…" not in said, said
    assert {"consensus", "distance", "per", "worker", "fewer"} <= set(said.split())
