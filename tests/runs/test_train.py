"""Runs with real processes: the same bits as simulated, whatever is killed on the way."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from gossamer.runs import RunFolder, resume, simulate, train
from gossamer.runs.processes.launch import WorkerFailed
from tests.support.processes import torchrun
from tests.support.runs import METHODS, break_off, final, processes_of, same, without_time
from tests.support.small import FILE, small
from tests.support.waiting import wait_for, wait_until

ROOT = Path(__file__).resolve().parents[2]


def start(folder, *flags, **environment):
    """Start the command in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "gossamer",
        "train",
        "--task",
        FILE,
        "--out",
        str(folder),
        "--workers",
        "3",
    ]
    command += ["--batch-size", "4", "--steps", "12", "--checkpoint-every", "2", "--evaluate-every", "6"]
    command += ["--log-every", "3", "--deadline", "60", "--gamma", "0.2", *flags]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "GOSSAMER_HELD": str(folder.parent), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def all_of(word, folder):
    """Return the files by which workers say that they are `held`, or were `told` to stop."""
    return [folder / f"{word}-{rank}" for rank in range(3)]


@pytest.mark.parametrize("name", [name for name in METHODS if " " not in name])  # one an algorithm
def test_a_worker_killed_in_a_write_costs_nothing(tmp_path, monkeypatch, name):
    """Killed before, between and after the renames that make a checkpoint, or the metrics' file."""
    config = small(**METHODS[name])
    whole = simulate(config, tmp_path / "whole")
    rng = random.Random(f"kill {name}")
    monkeypatch.setenv("GOSSAMER_FAULT", f"{rng.randrange(3)} rename {rng.randrange(1, 12)}")
    with pytest.raises(WorkerFailed, match=r"was killed by SIGKILL\. Resume with --resume .*/run$"):
        train(config, tmp_path / "run")
    assert not processes_of(tmp_path / "run")
    assert RunFolder(tmp_path / "run").status() == "failed"
    monkeypatch.delenv("GOSSAMER_FAULT")
    resumed = resume(tmp_path / "run")
    assert replace(without_time(resumed), clock="modelled") == without_time(whole)
    assert same(final(tmp_path / "run"), final(tmp_path / "whole"))


@pytest.mark.parametrize("name", ["choco", "ecd", "powergossip", "dpsgd overlap 2 of 3"])
def test_a_simulated_run_is_resumed_as_a_real_one_and_back(tmp_path, monkeypatch, name):
    config = small(**METHODS[name])
    whole = simulate(config, tmp_path / "whole")
    break_off(monkeypatch, config, tmp_path / "run", at=5)
    monkeypatch.setenv("GOSSAMER_FAULT", "1 loss 5")
    with pytest.raises(WorkerFailed, match="a mistake in the user's loss"):
        resume(tmp_path / "run", simulated=False)
    assert RunFolder(tmp_path / "run").checkpoints.steps(1)[0] == 8, "real workers went on from step 4"
    monkeypatch.delenv("GOSSAMER_FAULT")
    assert without_time(resume(tmp_path / "run", simulated=True)) == without_time(whole)
    assert same(final(tmp_path / "run"), final(tmp_path / "whole"))


def test_a_modelled_network_cannot_become_real(tmp_path, monkeypatch):
    break_off(monkeypatch, small(bandwidth="10mbit", latency="1ms"), tmp_path / "run", at=5)
    with pytest.raises(ValueError, match="can only be modelled"):
        resume(tmp_path / "run", simulated=False)
    assert resume(tmp_path / "run").status == "finished"


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.study) for seed in range(2, 9))])
def test_everything_killed_at_a_random_moment_costs_nothing(tmp_path, seed):
    """However late the moment comes: nobody gets further than the last step."""
    whole = simulate(small(), tmp_path / "whole")
    rng = random.Random(seed)
    with start(tmp_path / "run", GOSSAMER_FAULT="all sleep 0.1, all hold 12") as process:
        wait_until(lambda: RunFolder(tmp_path / "run").checkpoints.steps(0))
        time.sleep(rng.uniform(0, 1.0))
        process.send_signal(signal.SIGKILL)  # the launcher only: its workers must follow
        process.stdout.read()
    wait_until(lambda: not processes_of(tmp_path / "run"))
    assert RunFolder(tmp_path / "run").status() == "running"  # as far as anybody could write down
    resumed = resume(tmp_path / "run")
    assert replace(without_time(resumed), clock="modelled") == without_time(whole)
    assert same(final(tmp_path / "run"), final(tmp_path / "whole"))


def test_ctrl_c_saves_and_tells_how_to_go_on(tmp_path):
    whole = simulate(small(), tmp_path / "whole")
    with start(tmp_path / "run", GOSSAMER_FAULT="all hold 5") as process:
        wait_for(all_of("held", tmp_path))
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
    assert process.returncode == 130, said
    assert f"gossamer train --resume {tmp_path / 'run'}" in said
    assert "Traceback" not in said
    assert not processes_of(tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    assert folder.status() == "interrupted"
    steps = folder.summary().steps
    assert steps is not None
    assert folder.checkpoints.steps(0)[0] == folder.checkpoints.steps(1)[0] == steps < 12
    assert replace(without_time(resume(tmp_path / "run")), clock="modelled") == without_time(whole)


@pytest.mark.parametrize("delay", [0.2, 2.0])
def test_ctrl_c_at_the_start(tmp_path, delay):
    """While imports go on, or soon after: nothing is left, no traceback is shown."""
    with start(tmp_path / "run", GOSSAMER_FAULT="all hold 5") as process:
        wait_until((tmp_path / "run/config.json").exists)
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        (tmp_path / "go").touch()  # for workers that had heard it before they began to wait
        said = process.stdout.read()
    assert process.returncode in (130, 0), said  # 0: workers were done when they heard of it
    assert "Traceback" not in said
    assert not processes_of(tmp_path / "run")


FAREWELL = """
import atexit, os
atexit.register(lambda: Path(__file__).with_name(f"farewell-{os.environ.get('RANK')}").touch())
"""


def test_threads_of_the_user_do_not_hang_the_fork_and_farewells_are_said(tmp_path):
    own = tmp_path / "own.py"
    own.write_text(Path(FILE).read_text() + FAREWELL)
    with start(tmp_path / "run", "--task", str(own), OMP_NUM_THREADS="2") as process:
        said = process.stdout.read()
    assert process.returncode == 0, said
    assert all((tmp_path / f"farewell-{rank}").exists() for rank in range(3))


def test_leaving_without_a_word_is_a_failure(tmp_path):
    with start(tmp_path / "run", GOSSAMER_FAULT="1 exit 3") as process:
        said = process.stdout.read()
    assert process.returncode == 1
    assert "SystemExit" in said


def test_nobody_needs_to_read_the_progress(tmp_path):
    """As in `gossamer train | head -n 1`."""
    with start(tmp_path / "run", "--evaluate-every", "1", GOSSAMER_FAULT="all sleep 0.1") as process:
        process.stdout.readline()
        process.stdout.close()
    assert RunFolder(tmp_path / "run").status() == "finished"


def test_two_processes_do_not_share_a_run(tmp_path):
    with start(tmp_path / "run", GOSSAMER_FAULT="all freeze 5") as process:
        wait_for(all_of("held", tmp_path))
        with pytest.raises(ValueError, match="another process"):
            resume(tmp_path / "run")
        (tmp_path / "go").touch()
        process.stdout.read()
    assert process.returncode == 0


def test_a_second_ctrl_c_ends_it_at_once(tmp_path):
    with start(tmp_path / "run", "--evaluate-every", "1", GOSSAMER_FAULT="all freeze 4") as process:
        wait_for(all_of("held", tmp_path))
        process.send_signal(signal.SIGINT)
        wait_for(all_of("told", tmp_path))
        process.send_signal(signal.SIGINT)
        said = process.stdout.read()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert not processes_of(tmp_path / "run")


def test_a_workers_exception_is_shown_once(tmp_path):
    with start(tmp_path / "run", GOSSAMER_FAULT="1 loss 5") as process:
        said = process.stdout.read()
    assert process.returncode == 1
    assert said.count("RuntimeError: a mistake in the user's loss") == 1, said
    assert said.count("Traceback") == 1
    assert "worker 1 failed" in said
    assert not processes_of(tmp_path / "run")


def test_divergence_is_no_crash(tmp_path):
    with start(tmp_path / "run", "--lr", "1e6") as process:
        said = process.stdout.read()
    assert "diverged" in said
    assert "Traceback" not in said, said
    assert RunFolder(tmp_path / "run").status() == "diverged"
    summary = RunFolder(tmp_path / "run").summary()
    assert (summary.workers, len(summary.bytes_sent or ()), summary.steps) == (3, 3, 1), summary
    text = "".join(path.read_text() for path in (tmp_path / "run/metrics").iterdir())
    assert '"kind": "diverged"' in text


def test_torchrun_joins(tmp_path):
    words = ["gossamer", "train", "--task", FILE, "--steps", "4", "--batch-size", "4"]
    words += ["--algorithm", "dpsgd", "--out", str(tmp_path / "run")]
    assert torchrun("-m", tmp_path, *words).count("of the average model") == 1
    real = RunFolder(tmp_path / "run").summary()
    config = RunFolder(tmp_path / "run").config()
    same = without_time(simulate(config, tmp_path / "same"))
    # torchrun's workers may have another number of threads than this process, and sums round by it
    assert real.consensus_distance == pytest.approx(same.consensus_distance, rel=1e-6)
    theirs = {"clock": "modelled", "consensus_distance": same.consensus_distance}
    assert replace(without_time(real), **theirs) == same


def test_torchrun_with_another_number_of_workers_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="started 2 workers, the run has 3: start as many, or leave"):
        train(small(), tmp_path / "run")
    assert not (tmp_path / "run").exists()
