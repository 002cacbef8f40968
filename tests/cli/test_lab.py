"""The lab's command: real runs on slow links, and anybody's script."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gossamer.runs import RunFolder, simulate
from tests.support.runs import processes_of, without_time
from tests.support.small import FILE
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


pytestmark = pytest.mark.usefixtures("machine")


def lab(*words, **environment):
    return subprocess.Popen(
        [sys.executable, "-m", "gossamer", "lab", *map(str, words)],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def namespaces_of(pid):
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split() if f"-{pid}-" in name]


def test_a_run_over_four_namespaces(tmp_path):
    """The same bits as simulated, each step with two latencies at least, and nothing left behind."""
    words = [
        "--workers",
        4,
        "--bandwidth",
        "10mbit",
        "--latency",
        "20ms",
        "train",
        "--task",
        FILE,
        "--steps",
        6,
    ]
    with lab(*words, "--batch-size", 4, "--algorithm", "dpsgd", "--out", tmp_path / "run") as process:
        said = process.stdout.read()
    assert process.returncode == 0, said
    assert "round trip" in said
    summary = RunFolder(tmp_path / "run").summary()
    assert (summary.seconds or 0) > 6 * 0.04
    assert "10 Mbit/s, 20 ms" in (summary.network or "")
    same = simulate(RunFolder(tmp_path / "run").config(), tmp_path / "same")
    theirs = {"clock": "modelled", "network": None}
    assert replace(without_time(summary), **theirs) == without_time(same)
    assert not namespaces_of(process.pid)


SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
print("total", total.item(), flush=True)
dist.barrier()
dist.destroy_process_group()  # without it gloo's threads may abort the process at its end
"""


def test_anybodys_script(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    base = ["--workers", 3, "--latency", "5ms", "--no-measure", "exec", "--", sys.executable, script]
    with lab(*base) as process:
        said = process.stdout.read()
    assert process.returncode == 0, said
    assert all(f"{rank} | total 6.0" in said for rank in range(3))
    assert not namespaces_of(process.pid)


def test_the_first_failure_ends_all(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import os, sys, time\nsys.exit(7) if os.environ['RANK'] == '1' else time.sleep(600)\n")
    with lab("--workers", 3, "--no-measure", "exec", "--", sys.executable, script) as process:
        said = process.stdout.read()
    assert process.returncode == 7, said
    assert not namespaces_of(process.pid)


def test_ctrl_c_leaves_nothing_behind(tmp_path):
    script = tmp_path / "sleep.py"
    script.write_text("import time\nprint('awake', flush=True)\ntime.sleep(600)\n")
    base = ["--workers", 3, "--no-measure", "exec", "--", sys.executable, script]
    with lab(*base) as process:
        while "awake" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert process.returncode == 130
    assert not namespaces_of(process.pid)
    wait_until(lambda: not processes_of(script))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["trian"], "runs train or exec"),
        (["exec"], "nothing to execute"),
        (["--scenario", "hoems", "train"], "did you mean 'homes'"),
        (["--bandwidth", "10mbps", "train"], "mbit"),
    ],
)
def test_mistakes_are_explained(gossamer, words, complaint):
    code, said = gossamer("lab", *words)
    assert code == 1
    assert complaint in said
    assert "Traceback" not in said
