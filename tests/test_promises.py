"""What pyproject.toml and the documents promise is what is tested."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

from gossamer.cli import doctor

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS_TRIED = ("cli", "report", "tensorboard", "demo", "mesh")  # by `make test-oldest`


def pins(name: str) -> dict[str, Version]:
    """Return the versions of a file of constraints."""
    lines = (ROOT / name).read_text().splitlines()
    exact = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {each.name: Version(str(each.specifier).removeprefix("==")) for each in exact}


def oldest() -> dict[str, Version]:
    """Return the oldest version that is accepted of every package."""
    texts = [*PROJECT["dependencies"]]
    for extra in EXTRAS_TRIED:
        texts += PROJECT["optional-dependencies"][extra]
    wanted = [Requirement(text) for text in texts]
    return {
        each.name: Version(str(each.specifier).removeprefix(">="))
        for each in wanted
        if each.name != "gossamer"
    }


def test_the_oldest_versions_accepted_are_those_tried():
    tried = pins("constraints-oldest.txt")
    assert {name: tried.get(name) for name in oldest()} == oldest()


def test_the_oldest_torch_is_the_same_everywhere():
    torch = Version(doctor.OLDEST_TORCH)
    assert torch == oldest()["torch"]
    readme = (ROOT / "README.md").read_text()
    assert f"torch {doctor.OLDEST_TORCH} or newer" in readme
    assert f"torch {pins('constraints-oldest.txt')['torch']} among them" in readme
    assert f"everything with torch {pins('constraints.txt')['torch']}" in readme


def test_the_system_that_is_tested_is_the_one_named():
    systems = [text for text in PROJECT["classifiers"] if text.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]
    assert "Tested on Linux, x86-64" in (ROOT / "README.md").read_text()


def test_the_python_that_is_tested_is_the_oldest_accepted():
    accepted = PROJECT["requires-python"].removeprefix(">=")
    assert re.search(rf"Python {re.escape(accepted)}:", (ROOT / "README.md").read_text())
    assert f"Programming Language :: Python :: {accepted}" in PROJECT["classifiers"]
