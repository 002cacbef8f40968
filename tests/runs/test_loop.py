"""The loop, simulated: what it writes, how it goes on after a stop, how it ends when it diverges."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from gossamer.runs import RunFolder, export, resume, simulate
from gossamer.runs.files import read_lines
from gossamer.runs.record import read_run
from gossamer.runs.training.checkpoint import DamagedCheckpoint
from gossamer.runs.training.local_workers import AllWorkers
from tests.support.runs import METHODS, Stop, break_off, final, same, stopping, without_time
from tests.support.small import small
from tests.support.small import task as small_task


def lines_without_time(path):
    return [{key: value for key, value in line.items() if key != "seconds"} for line in read_lines(path)]


@pytest.mark.parametrize("name", METHODS)
def test_a_broken_off_run_goes_on_bit_for_bit(tmp_path, monkeypatch, name):
    config = small(**METHODS[name])
    whole = simulate(config, tmp_path / "whole")
    break_off(monkeypatch, config, tmp_path / "broken", at=random.Random(name).randrange(3, 12))
    broken = resume(tmp_path / "broken")
    assert without_time(broken) == without_time(whole)
    assert same(final(tmp_path / "broken"), final(tmp_path / "whole"))
    for rank in range(3):
        whole, broken = (tmp_path / run / "metrics" / f"worker-{rank}.jsonl" for run in ("whole", "broken"))
        assert lines_without_time(broken) == lines_without_time(whole)


def test_what_a_run_leaves(tmp_path):
    summary = simulate(small(), tmp_path / "run", command="gossamer simulate --task small.py")
    run = read_run(tmp_path / "run")
    assert summary == run.summary
    assert run.environment["command"] == "gossamer simulate --task small.py"
    assert [line["step"] for line in run.train[2]] == [3, 6, 9, 12]
    assert [line["step"] for line in run.evaluations] == [6, 12]
    assert run.evaluations[-1]["average"] == summary.average
    assert summary.status == "finished"
    assert summary.partition is not None
    assert summary.partition.counts is not None
    assert sum(summary.partition.counts[0]) == 40
    assert summary.links is not None
    assert summary.bytes_sent is not None
    assert {tuple(link[:2]) for link in summary.links} == {
        (i, j) for i in range(3) for j in range(3) if i != j
    }
    assert list(summary.bytes_sent) == [sum(c for i, _, c in summary.links if i == r) for r in range(3)]
    assert RunFolder(tmp_path / "run").checkpoints.steps(0) == [12, 10]


def test_the_evaluations_mean_what_they_say(tmp_path):
    """Against the definition, from the checkpoints: BatchNorm statistics are averaged like parameters."""
    summary = simulate(small(), tmp_path / "run")
    states = [state["model"] for state in final(tmp_path / "run")]
    task, models = small_task(), []
    for state in states:
        models.append(task.model())
        models[-1].load_state_dict(state)
    accuracies = [task.evaluate(model)["accuracy"] for model in models]
    assert summary.local_mean is not None
    assert summary.average is not None
    assert summary.local_mean["accuracy"] == pytest.approx(sum(accuracies) / 3)
    mean = {k: torch.stack([s[k].double() for s in states]).mean(0).to(states[0][k].dtype) for k in states[0]}
    models[0].load_state_dict(mean)
    expected = task.evaluate(models[0])
    assert summary.average["test loss"] == pytest.approx(expected["test loss"], rel=1e-5)
    assert summary.average["accuracy"] == pytest.approx(expected["accuracy"], abs=0.01)  # one of 120
    trained = [name for name, _ in models[0].named_parameters()]
    squares = [sum((s[k] - mean[k]).double().square().sum() for k in trained) for s in states]
    assert summary.consensus_distance == pytest.approx(float(sum(squares) / 3) ** 0.5, rel=1e-5)


def test_the_exported_model_is_the_average(tmp_path):
    simulate(small(), tmp_path / "run")
    assert export(tmp_path / "run", tmp_path / "model.safetensors") == 12
    states = [state["model"] for state in final(tmp_path / "run")]
    exported = load_file(tmp_path / "model.safetensors")
    assert exported.keys() == states[0].keys()
    for name, value in exported.items():
        assert torch.allclose(
            value.double(), torch.stack([s[name].double() for s in states]).mean(0), atol=1e-6
        )
    for again in range(5):  # safetensors would write several notes in another order each time
        export(tmp_path / "run", tmp_path / f"{again}.safetensors")
        assert (tmp_path / f"{again}.safetensors").read_bytes() == (
            tmp_path / "model.safetensors"
        ).read_bytes()
    with pytest.raises(ValueError, match="safetensors"):
        export(tmp_path / "run", tmp_path / "model.pt")


def test_divergence_is_an_outcome(tmp_path):
    summary = simulate(small(lr=1e6, steps=50), tmp_path / "run")
    assert summary.status == "diverged"
    assert "learning rate" in (summary.error or "")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["status"] == "diverged"
    assert resume(tmp_path / "run").status == "diverged"


def test_a_damaged_checkpoint_is_refused_and_the_older_one_offered(tmp_path, monkeypatch):
    config = small(keep=3)
    whole = simulate(config, tmp_path / "whole")
    break_off(monkeypatch, config, tmp_path / "run", at=9)
    path = tmp_path / "run" / "checkpoints" / "step-00000008" / "worker-1.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(DamagedCheckpoint, match=r"worker 1's checkpoint of step 8 .* --at-step 6"):
        resume(tmp_path / "run")
    with pytest.raises(ValueError, match=r"hold \[8, 6, 4\]"):
        resume(tmp_path / "run", at_step=5)
    assert without_time(resume(tmp_path / "run", at_step=6)) == without_time(whole)
    assert same(final(tmp_path / "run"), final(tmp_path / "whole"))


def test_a_checkpoint_that_not_all_have_is_not_kept_in_place_of_a_new_one(tmp_path, monkeypatch):
    """Workers 0 and 1 have written step 8, worker 2 has not; with keep=1 step 6 must not fall for it."""
    config = small(keep=1)
    whole = simulate(config, tmp_path / "whole")
    break_off(monkeypatch, config, tmp_path / "run", at=5)
    source = tmp_path / "run" / "checkpoints" / "step-00000004"
    for rank in (0, 1):
        for suffix in ("json", "safetensors"):
            target = tmp_path / "run" / "checkpoints" / "step-00000008" / f"worker-{rank}.{suffix}"
            target.parent.mkdir(exist_ok=True)
            target.write_bytes((source / f"worker-{rank}.{suffix}").read_bytes())
    (tmp_path / "run" / "checkpoints" / "step-00000004.bak").mkdir()  # somebody's own copy
    with monkeypatch.context() as patch:
        patch.setattr(AllWorkers, "step", stopping(at=7))
        with pytest.raises(Stop):
            resume(tmp_path / "run")
    assert [RunFolder(tmp_path / "run").checkpoints.steps(rank) for rank in range(3)] == [[6], [6], [6]]
    assert without_time(resume(tmp_path / "run")) == without_time(whole)


def test_only_a_step_that_all_hold_is_taken(tmp_path, monkeypatch):
    whole = simulate(small(), tmp_path / "whole")
    break_off(monkeypatch, small(), tmp_path / "run", at=9)
    for name in ("worker-2.json", "worker-0.safetensors.part"):  # killed before its JSON; while writing
        path = tmp_path / "run" / "checkpoints" / "step-00000008" / name
        path.unlink() if path.exists() else path.write_bytes(b"half")
    assert without_time(resume(tmp_path / "run")) == without_time(whole)


def test_a_folder_with_another_run_is_left_alone(tmp_path):
    simulate(small(steps=2), tmp_path / "run")
    with pytest.raises(FileExistsError, match=r"already holds a run .*finished.*--resume"):
        simulate(small(steps=3), tmp_path / "run")


def test_a_folder_that_is_no_run_is_left_alone(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(FileExistsError, match="not a run"):
        simulate(small(), tmp_path / "mine")


def test_only_a_run_can_be_resumed(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run"):
        resume(tmp_path / "nothing")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root: start the tests with sudo")
def test_a_full_disk_is_explained_and_costs_nothing(tmp_path):
    import subprocess

    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=120k", "tmpfs", disk], check=False)
    if mounted.returncode:
        pytest.skip("no small disk can be mounted here: in a container, start it with --privileged")
    try:
        with pytest.raises(Exception, match=r"could not save step .*No space left.*--resume"):
            simulate(small(steps=200, keep=100), disk / "run")
        steps = RunFolder(disk / "run").checkpoints.steps(0)
        assert len(steps) > 1
        for rank in range(3):
            RunFolder(disk / "run").checkpoints.load(steps[-1], rank)
        subprocess.run(["mount", "-o", "remount,size=100m", disk], check=True)
        assert resume(disk / "run").status == "finished"
    finally:
        subprocess.run(["umount", "--lazy", disk], check=False)


def test_the_modelled_clock_counts_compute_and_network(tmp_path, monkeypatch):
    """10 steps of 50 ms, and for every step two messages on the uplink and two latencies."""
    config = small(
        steps=10, algorithm="dpsgd", compute="50ms", bandwidth="1mbit", latency="20ms", simulated=True
    )
    summary = simulate(config, tmp_path / "run")
    assert summary.bytes_sent is not None
    bits = summary.bytes_sent[0] * 8 * 1.036
    assert summary.seconds == pytest.approx(10 * 0.05 + bits / 1e6 + 10 * 0.04)
    assert summary.network == "1 Mbit/s, 20 ms"
    flight = bits / 10 / 1e6 + 0.04
    early = simulate(replace(config, overlap=1), tmp_path / "early")
    assert early.seconds == pytest.approx(10 * max(0.05, flight))
    config = replace(config, compute="20ms", every=5, overlap=2)
    spread = simulate(config, tmp_path / "spread")
    assert flight > 2 * 0.02
    assert spread.seconds == pytest.approx(2 * (3 * 0.02 + flight))
    break_off(monkeypatch, config, tmp_path / "broken", at=9)  # while messages fly
    assert resume(tmp_path / "broken").seconds == spread.seconds


def test_the_callers_generators_are_left_alone(tmp_path):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    simulate(small(steps=2), tmp_path / "run")
    assert torch.equal(torch.rand(3), expected)


def test_numbers_with_a_gap(tmp_path):
    """As workers of a mesh have whose peers file has a revoked entry, or the folder of a single one."""
    simulate(small(), tmp_path / "run")
    export(tmp_path / "run", tmp_path / "before.safetensors")
    for path in sorted((tmp_path / "run").rglob("worker-0.*")):
        path.rename(path.with_name(path.name.replace("worker-0", "worker-5")))
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="no checkpoint of all 3 workers"):
        export(tmp_path / "run", tmp_path / "after.safetensors")
    folder.write_config(replace(folder.config(), simulated=False, transport="mesh"))
    export(tmp_path / "run", tmp_path / "after.safetensors")
    one, other = (load_file(tmp_path / f"{name}.safetensors") for name in ("before", "after"))
    assert all(torch.allclose(one[name], other[name]) for name in one)
    found = read_run(tmp_path / "run").evaluations
    assert found
    assert {line["kind"] for line in found} == {"evaluation"}
