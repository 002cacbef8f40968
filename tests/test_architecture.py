"""Dependencies point one way, files stay short, and the documents say what is true."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import gossamer

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "gossamer"

# Every module may import from its own layer and from those before it.
LAYERS = [
    {"errors", "layout", "rng", "naming", "tree"},
    {"wire", "topology", "network"},
    {"compress"},
    {"worker"},
    {"collectives", "lockstep", "clock"},
    {"algorithms"},
    {"flat", "settings", "sharded", "tuning", "transport", "sketch", "stamps"},
    {"buffers", "member", "guards", "exchanges", "interrupts", "agreement", "inner"},
    {"simulation", "average", "shown", "optimizer"},
    {"decentralize", "scaler"},
    {"testing", "tasks", "integrations"},
    {"lab"},
    {"runs"},
    {"report"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}

FORBIDDEN = {
    "topology": {"torch"},  # graphs are mathematics
    "algorithms": {"torch.distributed"},
    "compress": {"torch.distributed", "networkx"},
    "simulation": {"torch.distributed"},
}


def modules():
    return sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_dependencies_point_one_way(path):
    piece = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    for name in imports(path):
        for forbidden in FORBIDDEN.get(piece, ()):
            assert not (name + ".").startswith(forbidden + "."), f"{piece} must not know {forbidden}"
        parts = name.split(".")
        if parts[0] == "gossamer" and len(parts) > 1 and parts[1] in LEVEL:
            assert LEVEL[parts[1]] <= LEVEL[piece], f"{piece} imports {parts[1]}, which is above it"


def test_integrations_use_what_everybody_may_use():
    for path in (SOURCE / "integrations").glob("*.py"):
        ours = {name for name in imports(path) if name.startswith("gossamer.")}
        assert all(name.startswith("gossamer.integrations") for name in ours), path.name


def test_every_module_has_a_layer():
    pieces = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in modules()}
    assert pieces == set(LEVEL)


def test_no_file_is_longer_than_300_lines():
    for folder in ("src", "tests", "examples", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            assert len(path.read_text().splitlines()) <= 300, path


def test_an_algorithm_reads_beside_its_paper():
    for kind in gossamer.algorithms.NAMES.values():
        path = SOURCE / "algorithms" / f"{kind.__module__.rsplit('.', maxsplit=1)[-1]}.py"
        assert len(path.read_text().splitlines()) <= 90, path.name
        assert re.search(r"arXiv:\d{4}\.\d{5}", kind.__doc__), f"{kind.__name__} does not name its paper"


def test_every_algorithm_and_compressor_is_in_the_table_of_cases():
    from tests.cases import COMPRESSED, COMPRESSORS, PLAIN

    built = [make(COMPRESSORS["identity"]) for make in COMPRESSED.values()] + list(PLAIN.values())
    assert set(gossamer.algorithms.NAMES.values()) == {type(algorithm) for algorithm in built}
    named = {type(gossamer.compress.make(spec)) for spec in ("identity", "fp16", "topk:0.1", "randomk:0.1")}
    named |= {type(gossamer.compress.make(spec)) for spec in ("sign", "qsgd:4", "lowrank:1")}
    assert named == {type(compressor) for compressor in COMPRESSORS.values()}


def test_threads_draw_from_the_generator_that_they_share_one_at_a_time():
    """Between one thread's torch.manual_seed and its draws another's could draw: see `threads.seeded`."""
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text()
        if "run_threads" in text and path.name not in ("threads.py", Path(__file__).name):
            assert "torch.manual_seed" not in text, f"{path.name} seeds for all threads: use threads.seeded"
