"""The wheel and the sdist: built, looked through, installed where nothing else is, and used from there.

    python -m tests.packages          what `make dist` runs; leaves both in dist/

The environment is a new one with the versions of constraints.txt. What is run in it is what the README
promises: the loop with three more lines under torchrun, and the command.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
PACKAGE = ROOT / "src" / "gossamer"
CONSTRAINTS = ["--constraint", str(ROOT / "constraints.txt")]
WITH_A_WHEEL = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt"}
WITH_AN_SDIST = {
    "CHANGELOG.md",
    "LICENSE",
    "MANIFEST.in",
    "PKG-INFO",
    "README.md",
    "pyproject.toml",
    "setup.cfg",
}
BEFORE_THE_DIFF = """
import torch
Net, loss = lambda: torch.nn.Linear(4, 2), torch.nn.functional.cross_entropy
my_part_of_the_data = [(torch.randn(8, 4), torch.randint(2, (8,))) for _ in range(5)]
def evaluate(model):
    import os, pathlib
    pathlib.Path(__file__).with_name(os.environ["RANK"]).write_text(str(model.weight.tolist()))
"""


def the_readmes_loop() -> str:
    """Return the README's training loop with its added lines, and the little that it needs around it."""
    (diff,) = re.findall(r"```diff\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    added = [line for line in diff.splitlines() if line.startswith("+")]
    assert len(added) == 3, "the promise is three added lines"
    return BEFORE_THE_DIFF + "\n".join(line[1:] for line in diff.splitlines())


def require_same_model(folder: Path) -> None:
    """Both workers of the README's loop have evaluated the same average model."""
    shown = [(folder / rank).read_text() for rank in "01"]
    assert shown[0] == shown[1], shown


def run(*words: object, folder: Path, environment: dict[str, str] | None = None) -> str:
    """Run a command outside the repository and return what it printed."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stdout}"
    return done.stdout


def build(kind: str, source: Path, out: Path) -> Path:
    """Build "wheel" or "sdist" with the setuptools that is installed; what it warns of is an error."""
    printed = run(sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "-o", out, source, folder=out)
    warned = [line for line in printed.splitlines() if re.search("deprecat", line, re.IGNORECASE)]
    assert not warned, "\n".join(warned)
    (built,) = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def package_files() -> set[str]:
    """Return all that is in the package's folder, and so all that a wheel must hold."""
    paths = (path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {f"gossamer/{path.relative_to(PACKAGE)}" for path in paths}


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def check_wheel(wheel: Path) -> None:
    """Every file of the package, what describes it, and nothing else."""
    _, version, *_ = wheel.name.split("-")
    expected = package_files() | {f"gossamer-{version}.dist-info/{name}" for name in WITH_A_WHEEL}
    found = set(contents(wheel))
    assert found == expected, f"missing: {expected - found}, too much: {found - expected}"


def check_sdist(sdist: Path) -> None:
    """The package, what it takes to build it, and no more."""
    top = sdist.name.removesuffix(".tar.gz")
    with tarfile.open(sdist) as archive:
        names = {member.name.removeprefix(f"{top}/") for member in archive if member.isfile()}
    found = {name for name in names if not name.startswith("src/gossamer.egg-info/")}
    expected = {f"src/{name}" for name in package_files()} | WITH_AN_SDIST
    assert found == expected, f"missing: {expected - found}, too much: {found - expected}"


def build_all(work: Path) -> tuple[Path, Path]:
    """Build a wheel and an sdist, and show that the sdist makes the same wheel."""
    for name in ("build", "dist"):  # setuptools would put what is left there into the wheel
        shutil.rmtree(ROOT / name, ignore_errors=True)
    DIST.mkdir()
    wheel, sdist = build("wheel", ROOT, DIST), build("sdist", ROOT, DIST)
    check_wheel(wheel)
    check_sdist(sdist)
    again, unpacked = work / "again", work / "unpacked"
    again.mkdir()
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (source,) = unpacked.iterdir()
    assert contents(build("wheel", source, again)) == contents(wheel), "the sdist makes another wheel"
    return wheel, sdist


def try_it(python: Path, folder: Path) -> None:
    """Use what is installed there, and nothing of the repository."""
    alone = {"PYTHONPATH": "", "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    where = run(python, "-c", "import gossamer; print(gossamer.__file__)", folder=folder, environment=alone)
    assert Path(where.strip()).is_relative_to(python.parents[1]), where
    (folder / "train.py").write_text(the_readmes_loop())
    launch = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", 2]
    run(*launch, folder / "train.py", folder=folder, environment=alone)
    require_same_model(folder)
    gossamer = python.with_name("gossamer")
    simulate = ["simulate", "--task", "digits", "--workers", "2", "--epochs", "1", "--out", "run"]
    for words in (["--help"], ["doctor"], simulate, ["report", "run"], ["lab", "--help"]):
        run(gossamer, *words, folder=folder, environment=alone)
    assert "</html>" in (folder / "run" / "report.html").read_text(encoding="utf-8")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        wheel, sdist = build_all(work)
        run(sys.executable, "-m", "venv", work / "venv", folder=work)
        python = work / "venv" / "bin" / "python"
        install = [python, "-m", "pip", "install", "--quiet", "--no-compile", *CONSTRAINTS]
        run(*install, "torch", folder=work)  # first and alone, as in the Makefile
        run(*install, "setuptools", f"{wheel}[demo]", folder=work)
        over_it = ["--force-reinstall", "--no-deps", "--no-build-isolation", sdist]
        for kind, more in (("wheel", None), ("sdist", over_it)):
            if more:
                run(*install, *more, folder=work)
            (work / kind).mkdir()
            try_it(python, work / kind)
            sys.stdout.write(f"the {kind} holds what it should and works\n")


if __name__ == "__main__":
    main()
