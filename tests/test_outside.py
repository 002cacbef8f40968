"""An algorithm, a compressor and a topology from outside: registered in Python, or installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import gossamer
from gossamer import algorithms, compress, topology
from gossamer._registry import Registry
from gossamer.algorithms import Choco
from gossamer.compress import Sign, wire
from gossamer.compress.layout import Layout
from gossamer.errors import PackageError, WireError
from gossamer.testing import check_algorithm, check_compressor, check_topology
from tests.support import third_party
from tests.support.third_party import Gentle, Stride, wagon_wheel

REGISTRIES: tuple[Registry[Any], ...] = (algorithms.NAMES, compress.NAMES, topology.NAMES)
POINTS = """
[gossamer.algorithms]
gentle = third_party:Gentle
[gossamer.compressors]
stride = third_party:Stride
[gossamer.topologies]
wagon-wheel = third_party:wagon_wheel
"""
COMMANDS = """
import contextlib, io, json, sys
from gossamer.cli.main import main
told = []
for sys.argv in json.loads(sys.argv[1]):
    said, code = io.StringIO(), 0
    try:
        with contextlib.redirect_stdout(said):
            main()
    except SystemExit as end:
        code = end.code or 0
    told.append([code, said.getvalue()])
print(json.dumps(told))
"""


@pytest.fixture
def registered():
    """Register all three, and forget them afterwards."""
    before = [dict(names._known) for names in REGISTRIES]
    algorithms.register(Gentle)
    compress.register(Stride)
    topology.register(wagon_wheel)
    yield
    for names, known in zip(REGISTRIES, before, strict=True):
        names._known = known


def install(folder: Path, name: str, version: str, points: str) -> None:
    """Do what pip would leave in site-packages of a package with these entry points."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(points)


def run(folder: Path, *commands: str) -> tuple[list[tuple[int, str]], str]:
    """Run commands in a process that finds what is installed in a folder; return what each and all said."""
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS, json.dumps([["gossamer", *c.split()] for c in commands])],
        env={**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1", "COLUMNS": "1000"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.usefixtures("registered")
def test_what_is_registered_can_be_named():
    assert algorithms.make("gentle:2", "stride:3") == Gentle(Stride(3), parts=2)
    assert algorithms.needs_compressor("gentle")
    assert algorithms.takes("gentle", "parts")
    made = topology.make("wagon_wheel:2@max-degree", 7)
    assert made.fingerprint() == wagon_wheel(7, 2, "max_degree").fingerprint()
    run = gossamer.Simulation({"x": torch.zeros(8)}, "wagon-wheel", "gentle", "stride:3", workers=5)
    run.step()
    assert run.bytes_sent[1] == 3 * (16 + 3 * 4)
    with pytest.raises(ValueError, match="did you mean 'stride'"):
        compress.make("strid:3")
    with pytest.raises(ValueError, match=r"cannot read 'gentle:x': write gentle\[:PARTS\]"):
        algorithms.make("gentle:x", "sign")


@pytest.mark.parametrize("make", [lambda: algorithms.make("gentle"), lambda: compress.make("stride:3")])
def test_what_is_not_registered_cannot(make):
    with pytest.raises(ValueError, match="unknown"):
        make()


def test_they_keep_the_contracts_that_ours_keep():
    check_algorithm(Gentle(Stride(3)))
    check_compressor(Stride(2))
    check_topology(wagon_wheel(9, 2))


def test_an_installed_package_can_be_named_on_the_command_line(tmp_path):
    shutil.copy(third_party.__file__, tmp_path)
    install(tmp_path, "third_party", "1.5", POINTS)
    names = (
        "--algorithm gentle:2 --compressor stride:3 --topology wagon-wheel:2 --workers 4 --steps 3 --quiet"
    )
    told, errors = run(
        tmp_path,
        f"simulate {names} --out simulated",
        f"train {names} --out trained",
        "compare gentle --compressor stride:3 --steps 3 --workers 4 --quiet --out compared",
        "algorithms --json",
        "compressors --json",
        "topologies --json",
        "simulate --algorithm gentel",
        "simulate --compressor strido",
        "simulate --topology wagonweel",
        "topology wagon-wheel --n 9",
    )
    codes = [code for code, _ in told]
    assert codes == [0, 0, 0, 0, 0, 0, 1, 1, 1, 0], errors
    sent = [
        json.loads((tmp_path / run / "summary.json").read_text())["bytes_sent"]
        for run in ("simulated", "trained")
    ]
    assert sent[0] == sent[1]
    listed = [json.loads(said) for _, said in told[3:6]]
    assert listed[0][-1]["name"] == "gentle"
    assert listed[0][-1]["what"] == "half of the way to the neighbours"
    assert listed[1][-1]["text"] == "stride:3"
    assert listed[2][-1]["usage"] == "wagon-wheel[:SPACING]"
    assert all(f"did you mean '{name}'" in errors for name in ("gentle", "stride", "wagon-wheel"))


def test_a_package_that_is_broken_breaks_nothing_else(tmp_path):
    (tmp_path / "broken.py").write_text("import a_module_that_is_not_there\n")
    install(tmp_path, "broken", "0.1", "[gossamer.compressors]\nshattered = broken:Shattered\n")
    told, errors = run(tmp_path, "compressors --json", "simulate --compressor shattered", "topology ring")
    assert [code for code, _ in told] == [0, 1, 0]
    ours = {example for kind in compress.NAMES.ours for example in compress.NAMES[kind].examples}
    assert {row["text"] for row in json.loads(told[0][1])} == ours
    reason = "ModuleNotFoundError: No module named 'a_module_that_is_not_there'"
    text = f"the compressor 'shattered' of package broken 0.1 cannot be used: {reason}"
    assert f"note: {text}" in errors
    assert f"error: {text}" in errors


def fresh(group: str) -> Registry:
    """A registry that has looked for nothing yet."""
    ours = {"choco": "gossamer.algorithms.choco:Choco"}
    return Registry("algorithm", group, ours, "gossamer.algorithms.specs:admit", str.lower)


def test_a_name_is_taken_once(tmp_path, monkeypatch):
    point = "[tests.outside]\n{} = tests.support.third_party:Gentle\n"
    install(tmp_path, "first", "1.0", point.format("gentle"))
    install(tmp_path, "second", "2.0", point.format("gentle"))
    install(tmp_path, "rival", "3.0", point.format("choco"))
    install(tmp_path, "other", "4.0", point.format("harsh"))
    monkeypatch.syspath_prepend(tmp_path)
    names = fresh("tests.outside")
    with pytest.raises(
        PackageError, match=r"package (first|second) .* and package .* both have the algorithm"
    ):
        names["gentle"]
    found, problems = names.catalogue()
    assert found == {"choco": Choco}
    assert "the algorithm 'choco' of package rival 3.0: the name is taken by gossamer" in problems
    assert any(
        "'harsh' of package other 4.0 cannot be used" in p and "typed as gentle" in p for p in problems
    )


@pytest.mark.usefixtures("registered")
def test_a_name_that_is_taken_cannot_be_registered():
    @dataclass(frozen=True)
    class Ours(Gentle):
        examples: ClassVar[dict[str, str]] = {"choco": "another one"}

    @dataclass(frozen=True)
    class Theirs(Gentle):
        examples: ClassVar[dict[str, str]] = {"gentle": "another one"}

    with pytest.raises(ValueError, match=r"'choco' of .*Ours: the name is taken by gossamer"):
        algorithms.register(Ours)
    with pytest.raises(ValueError, match=r"the name is taken by tests\.support\.third_party\.Gentle"):
        algorithms.register(Theirs)
    assert algorithms.register(Gentle) is Gentle  # the same once more, as in a notebook


def test_known_names_look_for_no_packages(monkeypatch):
    def fail(**options):
        raise AssertionError("looked for packages")

    for names in REGISTRIES:
        monkeypatch.setattr(names, "_installed", None)
    monkeypatch.setattr("gossamer._registry.entry_points", fail)
    algorithms.make("choco", "topk:0.01:fp16")
    topology.make("ring@fastest", 4)
    with pytest.raises(AssertionError, match="looked for packages"):
        list(compress.NAMES)


def nameless(n):
    return None


def unreadable(n: int, sides: list[int]):
    """A graph."""


@pytest.mark.parametrize(
    ("register", "wrong", "problem"),
    [
        (topology.register, nameless, "docstring"),
        (topology.register, unreadable, "cannot be read from text"),
        (topology.register, 7, "no function"),
        (algorithms.register, Stride, "no class of Algorithm"),
        (algorithms.register, algorithms.Algorithm, "has no examples"),
    ],
)
def test_what_cannot_be_registered_says_why(register, wrong, problem):
    with pytest.raises(ValueError, match=problem):
        register(wrong)


def test_wire_codes_are_taken_once():
    taken = r"wire code 201, which is taken by tests\.support\.third_party\.Stride: take another"
    with pytest.raises(ValueError, match=taken):

        class Second(Stride):
            examples: ClassVar[dict[str, str]] = {"second": "the same"}


def test_wire_codes_of_gossamers_own_are_refused():
    with pytest.raises(ValueError, match="wire code 5: take one from 128 to 255"):

        class Low(Stride):
            code: ClassVar[int] = 5
            examples: ClassVar[dict[str, str]] = {"low": "a code of Gossamer's"}


def test_a_message_of_an_unexpected_kind_is_named():
    message = Stride(1).encode(torch.ones(4), Layout.flat(4))
    with pytest.raises(WireError, match="it holds stride where sign was expected"):
        Sign().decode(message, Layout.flat(4))
    assert wire.FORMATS[201] == "stride"


def test_every_name_of_ours_leads_to_what_is_typed_so():
    for names in REGISTRIES:
        for name in names.ours:
            assert name in {text.partition(":")[0] for text in names[name].examples}
