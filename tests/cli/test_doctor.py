"""gossamer doctor: what it finds, what it makes of trouble, and that it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from importlib import metadata
from pathlib import Path
from subprocess import Popen

import pytest
import torch
import typer
from typer.testing import CliRunner

from gossamer._processes import ThisMachine
from gossamer.cli import doctor as module
from gossamer.cli.exchange import Finding, check_exchange
from gossamer.tasks import builtin
from tests.support.waiting import LIMIT

app = typer.Typer()
app.command()(module.doctor)

LOCAL = {"lo": "127.0.0.1"}
NETWORKED = {"lo": "127.0.0.1", "docker0": "172.17.0.1", "eth0": "192.0.2.2"}


def run(*arguments, charset="utf-8"):
    return CliRunner(charset=charset, env={"COLUMNS": "80"}).invoke(app, arguments, catch_exceptions=False)


@pytest.fixture
def started(monkeypatch):
    """Remember the processes that a check starts."""
    processes = []

    def start(*args, popen=ThisMachine.popen, **kwargs):
        processes.append(popen(*args, **kwargs))
        return processes[-1]

    monkeypatch.setattr(ThisMachine, "popen", start)
    return processes


@pytest.fixture
def quick(monkeypatch):
    """Leave out what takes seconds."""
    monkeypatch.setattr(module, "check_data", lambda data: [Finding("ok", "data", "read")])
    monkeypatch.setattr(module, "check_exchange", lambda: Finding("ok", "exchange", "met"))
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)


def gone(process):
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    return True


def test_two_real_processes_average(started):
    finding = check_exchange(limit=LIMIT)
    assert finding.level == "ok", finding
    assert "1000 numbers" in finding.detail
    assert len(started) == 2
    assert all(gone(process) for process in started)
    assert [process.returncode for process in started] == [0, 0]


def test_an_exchange_that_fails_is_reported(started):
    code = "import os, sys, time; os.environ['RANK'] == '1' and sys.exit('no network today'); time.sleep(999)"
    finding = check_exchange([sys.executable, "-c", code], limit=9000)
    assert finding.level == "problem"
    assert finding.detail == "worker 1 failed: no network today"
    assert finding.remedy
    assert started[0].returncode == -signal.SIGKILL  # it was not waited for
    assert all(gone(process) for process in started)


def test_an_exchange_that_hangs_is_ended(started):
    finding = check_exchange([sys.executable, "-c", "import time; time.sleep(9000)"], limit=0.5)
    assert finding == Finding("problem", "exchange", "two processes did not meet in 0.5 s", finding.remedy)
    assert len(started) == 2
    assert all(gone(process) for process in started)


@pytest.mark.parametrize("said", ["nothing of use", '{"error": 0.5}', '{"error": NaN}'])
def test_an_exchange_with_a_wrong_result_is_reported(started, said):
    finding = check_exchange([sys.executable, "-c", f"import sys; sys.stdout.write({said!r})"])
    assert finding.level == "problem"
    assert "wrong average" in finding.detail


def test_a_worker_ends_with_its_parent(started):
    code = "import time; from gossamer._processes import end_with_parent; end_with_parent(); time.sleep(999)"
    with Popen([sys.executable, "-c", code], stdin=-1) as worker:
        assert worker.stdin is not None
        worker.stdin.close()
        assert worker.wait(LIMIT) == 1


def test_all_is_well_with_torch_here(quick):
    for charset in ("utf-8", "ascii"):
        result = run(charset=charset)
        assert result.exit_code == 0
        assert max(map(len, result.stdout.splitlines())) <= 80
        assert torch.__version__.partition("+")[0] in result.stdout
        assert "problems: 0" in result.stdout
    content = json.loads(run("--json").stdout)
    assert content["ok"]
    levels = {finding["what"]: finding["level"] for finding in content["findings"]}
    assert levels["versions"] == levels["distributed"] == levels["exchange"] == "ok"


def test_the_exit_code_tells_of_problems(quick, monkeypatch):
    monkeypatch.setattr(module, "check_exchange", lambda: Finding("problem", "exchange", "[no] luck", "dig"))
    result = run()
    assert result.exit_code == 1
    assert "[no] luck" in result.stdout
    assert "-> dig" in result.stdout
    assert "problems: 1" in result.stdout
    result = run("--json")
    assert result.exit_code == 1
    assert not json.loads(result.stdout)["ok"]


def test_versions_and_threads():
    assert module.check_versions("2.3.1").level == "problem"
    assert "torch>=2.4" in module.check_versions("2.3.1").remedy
    assert module.check_versions("2.10.0+cu128").level == "ok"
    assert module.check_threads({"OMP_NUM_THREADS": "8"}, cores=4).level == "warning"
    assert module.check_threads({"OMP_NUM_THREADS": "1"}, cores=4).level == "ok"
    assert "not set" in module.check_threads({}, cores=4).detail
    assert "gloo" in module.check_distributed().detail


def test_torch_without_gloo(monkeypatch):
    monkeypatch.setattr("torch.distributed.is_gloo_available", lambda: False)
    assert module.check_distributed().level == "problem"


def test_missing_packages(monkeypatch):
    assert [f.level for f in module.check_packages()] == ["ok"]
    version = metadata.version

    def without_matplotlib(name):
        if name == "matplotlib":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", without_matplotlib)
    there, missing = module.check_packages()
    assert "matplotlib" not in there.detail
    assert missing.level == "warning"
    assert missing.remedy == "pip install 'gossamer[report]'"


def test_the_remedies_name_extras_that_exist():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    for extra, names in module.EXTRAS.items():
        assert all(name in text.split(f"\n{extra} = ")[1].split("\n")[0] for name in names)


def test_interfaces():
    found = module.interfaces()
    assert set(found) == {name for _, name in socket.if_nameindex()}
    if sys.platform == "linux":
        assert found["lo"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("environ", "addresses", "resolved", "level", "text"),
    [
        ({}, NETWORKED, ["192.0.2.2"], "ok", "192.0.2.2"),
        ({}, NETWORKED, ["127.0.1.1"], "warning", "GLOO_SOCKET_IFNAME=eth0"),
        ({}, NETWORKED, [], "warning", "does not resolve"),
        ({}, LOCAL, ["127.0.0.1", "::1"], "ok", "only this machine"),
        ({"MASTER_ADDR": "192.0.2.9"}, NETWORKED, ["127.0.1.1"], "problem", "between machines"),
        ({"MASTER_ADDR": "192.0.2.2"}, NETWORKED, ["127.0.1.1"], "warning", "between machines"),
        ({"GLOO_SOCKET_IFNAME": "eth0"}, NETWORKED, [], "ok", "eth0"),
        ({"GLOO_SOCKET_IFNAME": "eth7"}, NETWORKED, [], "problem", "use one of eth0, docker0"),
    ],
)
def test_the_address_that_gloo_takes(monkeypatch, environ, addresses, resolved, level, text):
    def getaddrinfo(host, port):
        if not resolved:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", (address, 0)) for address in resolved]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    finding = module.check_address(environ, addresses)
    assert finding.level == level, finding
    assert text in f"{finding.detail} {finding.remedy}"


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({}, "ok"),
        ({"RANK": None, "WORLD_SIZE": None}, "ok"),
        ({"MASTER_PORT": None}, "problem"),
        ({"WORLD_SIZE": None}, "problem"),
        ({"RANK": "4"}, "problem"),
        ({"RANK": "first"}, "problem"),
        ({"MASTER_PORT": "99999"}, "problem"),
        ({"MASTER_ADDR": "nowhere.invalid"}, "problem"),
    ],
)
def test_the_variables_of_torchrun(changes, level):
    environ = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"} | changes
    finding = module.check_torchrun({name: value for name, value in environ.items() if value is not None})
    assert finding.level == level, finding
    assert module.check_torchrun({}).level == "ok"


def test_a_full_disk(tmp_path, monkeypatch):
    assert module.check_disk(tmp_path).what == "disk"
    monkeypatch.setattr(module, "LITTLE_SPACE", 10**18)
    assert module.check_disk(tmp_path).level == "warning"


def test_missing_data_is_explained(tmp_path, monkeypatch):
    monkeypatch.setattr(builtin, "FASHION", tmp_path / "fashion-mnist")
    found = {finding.what: finding for finding in module.check_data(None)}
    assert found["task digits"].detail == "1500 examples to train on"
    assert found["task fashion"].level == "warning"
    assert "dataset-fashion-mnist" in found["task fashion"].detail
    assert found["task cifar10"].level == "ok"  # it has no place of its own
    assert "--data" in found["task cifar10"].detail


def test_a_folder_of_data_is_read(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("a few words, more than thirty of them \n" * 20)
    found = module.check_data(tmp_path)
    assert [finding.what for finding in found] == ["task wikitext"]
    assert found[0].level == "ok"


def test_a_folder_without_data_is_a_problem(tmp_path):
    (finding,) = module.check_data(tmp_path)
    assert finding.level == "problem"
    assert "cifar10" in finding.remedy
    (finding,) = module.check_data(tmp_path / "nothing")
    assert "there is no" in finding.detail
