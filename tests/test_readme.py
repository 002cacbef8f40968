"""README and docs tell the truth: their code runs, their commands exist, their figures were measured."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.packages import require_same_model, the_readmes_loop
from tests.support.processes import run_python, torchrun

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("code", blocks("python", PAGES["simulation"]))
def test_the_simulations_run(code):
    printed = run_python("-W", "error", "-c", code)
    assert float(printed.split()[-1].strip("tensor()")) < 0.3


def test_python_blocks_are_run_somewhere():
    """A block that no test runs is marked as `py`."""
    found = {name: len(blocks("python", text)) for name, text in {**PAGES, "README": README}.items()}
    assert {name: count for name, count in found.items() if count} == {"simulation": 2, "start": 1}


def test_the_first_loop_learns_alone_and_the_second_with_others(tmp_path):
    """docs/start.md: a plain script, and the same one on four processes, with all that differs marked."""
    (alone,) = blocks("python", PAGES["start"])
    together = (ROOT / "examples" / "spirals.py").read_text(encoding="utf-8").partition('"""\n')[2]
    differ = set(alone.split("\n")) ^ set(together.split("\n"))
    assert not [line for line in differ if not re.search("# new|manual_seed|accuracy|# the end", line)]
    (tmp_path / "alone.py").write_text(alone)
    printed = [run_python("-W", "error", str(tmp_path / "alone.py"))]
    printed += [torchrun(ROOT / "examples" / "spirals.py", tmp_path, n=4)]
    for text in printed:
        assert float(re.findall(r"accuracy ([\d.]+)", text)[-1]) > 0.8  # guessing gives 0.5


def test_the_loop_that_saves_on_ctrl_c(tmp_path):
    """One of two workers is interrupted; both save after the same step."""
    (loop,) = blocks("py", PAGES["from_ddp"])
    before = """
import os, signal, torch, gossamer
torch.manual_seed(0)
model, loss = torch.nn.Linear(4, 2), torch.nn.functional.cross_entropy
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = gossamer.decentralize(optimizer, model, algorithm="choco", compressor="sign", gamma=0.5)
def forever():
    while True:
        if optimizer.rank == 1 and optimizer.rounds == 7:
            os.kill(os.getpid(), signal.SIGINT)
        yield torch.randn(8, 4), torch.randint(2, (8,))
batches = forever()
"""
    script = tmp_path / "train.py"
    script.write_text(before + loop.replace('f"worker', f'f"{tmp_path}/worker'))
    torchrun(script, tmp_path)
    saved = [torch.load(tmp_path / f"worker-{rank}.pt", weights_only=True)["gossamer"] for rank in (0, 1)]
    assert [state["rank"] for state in saved] == [0, 1]
    assert saved[0]["steps"] == saved[1]["steps"] > 7


def test_the_diff_runs_under_torchrun(tmp_path):
    (tmp_path / "train.py").write_text(the_readmes_loop())
    torchrun(tmp_path / "train.py", tmp_path)
    require_same_model(tmp_path)


ONE_AFTER_THE_OTHER = """
import json, sys
from gossamer.cli.main import main
for sys.argv in json.loads(sys.argv[1]):
    print(sys.argv, file=sys.stderr)
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""


@pytest.mark.timeout(1800)
def test_the_commands_run(tmp_path):
    commands = re.findall(r"^gossamer [^#\n]+", PAGES["command_line"], re.MULTILINE)
    assert {command.split()[1] for command in commands} >= {
        "train",
        "simulate",
        "compare",
        "report",
        "export",
    }
    words = [shlex.split(command) for command in commands]
    done = subprocess.run(
        [sys.executable, "-c", ONE_AFTER_THE_OTHER, json.dumps(words)],
        env=ENVIRONMENT,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert (tmp_path / "runs/digits-choco-1/report.html").stat().st_size > 10_000
    assert (tmp_path / "model.safetensors").exists()


def test_the_whole_script_learns(tmp_path):
    printed = torchrun(ROOT / "examples" / "digits.py", tmp_path)
    last = re.findall(r"average model ([\d.]+)%", printed)[-1]
    assert float(last) > 75  # guessing gives 10


def test_make_targets_exist():
    targets = re.findall(r"^make (\w+)", README, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()
    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_message_sizes_are_the_measured_ones():
    measured = json.loads((ROOT / "docs/results/message_sizes.json").read_text())["results"]["message bytes"]
    rows = re.findall(
        r"^\| `([\w:.]+)`[^|]*\|[^|]*\| ([\d ]+) \| 1(?:/(\d+))? \|", PAGES["compressors"], re.MULTILINE
    )
    assert len(rows) == 10
    for text, size, part in rows:
        found = measured[text]
        found = found["mean"] if isinstance(found, dict) else found
        assert int(size.replace(" ", "")) == found, text
        assert round(measured["identity"] / found) == int(part or 1), text


def test_links_lead_somewhere():
    for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(((?!http)[^)#]+)\)", path.read_text(encoding="utf-8")):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
