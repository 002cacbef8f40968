"""Dependencies point one way, files stay short, and the documents say what is true."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gossamer
from gossamer.runs import simulate
from tests.support.small import small

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "gossamer"
TESTS = ROOT / "tests"

# Every room may import from itself and from the rooms before it; see CONTRIBUTING.md.
ROOMS = [
    {"errors", "_lazy", "_options", "_processes", "_random", "_registry", "_suggest", "_version"},
    {"topology", "network"},
    {"compress"},
    {"rounds"},
    {"algorithms", "transport", "network.clock"},
    {"_mesh"},
    {"_node"},
    {"_doors"},
    {"testing", "tasks", "integrations"},
    {"lab"},
    {"runs"},
    {"report"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(ROOMS) for name in names}

FORBIDDEN = {
    "topology": {"torch"},  # graphs are mathematics
    "algorithms": {"torch.distributed"},
    "compress": {"torch.distributed", "networkx"},
    "lab": {"torch"},  # it starts at once, also where there is none
}


def modules():
    return sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "."
            yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)


def room(name):
    """Return the room of a module, or of a name in it; None for what is not ours or the package itself."""
    parts = name.split(".")
    if parts[0] != "gossamer":
        return None
    return next((r for r in (".".join(parts[1:3]), parts[1] if parts[1:] else "") if r in LEVEL), None)


def own_room(path):
    return room(".".join(["gossamer", *path.relative_to(SOURCE).with_suffix("").parts]))


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_dependencies_point_one_way(path):
    own = own_room(path)
    assert own is not None, f"{path} is in no room"
    for name in imports(path):
        for forbidden in FORBIDDEN.get(own, ()):
            assert not (name + ".").startswith(forbidden + "."), f"{own} must not know {forbidden}"
        other = room(name)
        if other is not None:
            allowed = other == own or LEVEL[other] < LEVEL[own] or (LEVEL[other] == 0 == LEVEL[own])
            assert allowed, f"{own} imports {other}, which is not before it"


WITHOUT_TORCH = [
    "gossamer",
    "gossamer.topology",
    "gossamer.algorithms.names",
    "gossamer.compress.names",
    "gossamer.network",
    "gossamer.lab.switch",
    "gossamer.cli.main",
]


@pytest.mark.parametrize("module", WITHOUT_TORCH)
def test_what_needs_no_tensors_loads_no_torch(module):
    """As the interpreter sees it, not as the text does."""
    code = f"import {module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=240).returncode == 0


def test_help_and_report_load_no_torch(tmp_path):
    simulate(small(), tmp_path / "run")
    for words in (["--help"], ["train", "--help"], ["report", str(tmp_path / "run")]):
        code = f"import sys; sys.argv = ['gossamer', *{words}]\nfrom gossamer.__main__ import main\n"
        code += (
            "try:\n    main()\nexcept SystemExit as end:\n    sys.exit(end.code or 'torch' in sys.modules)"
        )
        code += "\nsys.exit('torch' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], check=False, timeout=240, capture_output=True)
        assert done.returncode == 0, (words, done.stderr)


def test_only_doors_are_on_the_top_level():
    """What people import is a room or a name of the package; every other module on top is private."""
    loose = {path.stem for path in SOURCE.glob("*.py")} - {"__init__", "__main__", "errors"}
    assert all(name.startswith("_") for name in loose), loose


def test_every_public_name_can_be_had():
    for module in (gossamer, gossamer.runs):
        for name in module.__all__:
            assert getattr(module, name) is not None
        with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
            module.nothing  # noqa: B018
    assert set(gossamer.__all__) <= set(dir(gossamer))


def test_integrations_use_what_everybody_may_use():
    for path in (SOURCE / "integrations").glob("*.py"):
        ours = {name for name in imports(path) if name.startswith("gossamer.")}
        assert all(name.startswith("gossamer.integrations") for name in ours), path.name


def test_every_room_has_somebody_in_it():
    assert {own_room(path) for path in modules()} == set(LEVEL)


def test_no_file_is_longer_than_300_lines():
    for folder in ("src", "tests", "examples", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            assert len(path.read_text().splitlines()) <= 300, path


def test_an_algorithm_reads_beside_its_paper():
    for kind in gossamer.algorithms.NAMES.values():
        path = SOURCE / "algorithms" / f"{kind.__module__.rsplit('.', maxsplit=1)[-1]}.py"
        assert len(path.read_text().splitlines()) <= 90, path.name
        assert re.search(r"arXiv:\d{4}\.\d{5}", kind.__doc__ or ""), (
            f"{kind.__name__} does not name its paper"
        )


def test_every_algorithm_and_compressor_is_in_the_table_of_cases():
    from tests.support.cases import COMPRESSED, COMPRESSORS, PLAIN

    built = [make(COMPRESSORS["identity"]) for make in COMPRESSED.values()] + list(PLAIN.values())
    assert set(gossamer.algorithms.NAMES.values()) == {type(algorithm) for algorithm in built}
    named = {gossamer.compress.NAMES[name] for name in gossamer.compress.NAMES.ours}
    assert named == {type(compressor) for compressor in COMPRESSORS.values()}


def test_threads_draw_from_the_generator_that_they_share_one_at_a_time():
    """Between one thread's torch.manual_seed and its draws another's could draw: see `threads.seeded`."""
    for path in TESTS.rglob("*.py"):
        text = path.read_text()
        if "run_threads" in text and path.name not in ("threads.py", Path(__file__).name):
            assert "torch.manual_seed" not in text, f"{path.name} seeds for all threads: use threads.seeded"


def test_nothing_imports_a_test_file():
    """What several test files need is in tests/support: a test file can be read, moved and run alone."""
    taken = {
        path.name: [m for m in imports(path) if re.search(r"(^|\.)test_", m)] for path in TESTS.rglob("*.py")
    }
    taken = {name: modules for name, modules in taken.items() if modules}
    assert not taken, "move what they share to tests/support"


def test_helpers_of_the_tests_have_one_place():
    """Beside them are only what pytest itself reads, and the modules that are commands."""
    everywhere = {"__init__.py", "conftest.py"}
    on_top = everywhere | {"kinds.py", "digests.py", "everywhere.py", "packages.py"}
    for path in TESTS.rglob("*.py"):
        if path.parent.name != "support" and not path.name.startswith("test_"):
            allowed = on_top if path.parent == TESTS else everywhere
            assert path.name in allowed, f"{path.relative_to(ROOT)} is no test: move it to tests/support"


def test_no_algorithm_or_compressor_is_asked_for_by_name_outside_its_file():
    """What the rest needs to know of one, the class says."""
    kinds = [*gossamer.algorithms.NAMES.values(), *gossamer.compress.Compressor.__subclasses__()]
    names = "|".join(kind.__name__ for kind in kinds)
    asked = re.compile(rf"(isinstance|issubclass)\([^)]*\b({names})\b|\bis (not )?({names})\b")
    for path in modules():
        found = asked.search(path.read_text(encoding="utf-8"))
        assert found is None or path.stem in {kind.__module__.rpartition(".")[2] for kind in kinds}, (
            path,
            found,
        )
