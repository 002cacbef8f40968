import ast
import sys
from pathlib import Path

import gossamer.naming
import gossamer.topology

ALLOWED = {"numpy", "networkx", *sys.stdlib_module_names}


def imported(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module


def test_graphs_know_nothing_of_tensors():
    own = ("gossamer.topology", "gossamer.naming")  # naming is checked beside the package
    for path in [*Path(gossamer.topology.__file__).parent.glob("*.py"), Path(gossamer.naming.__file__)]:
        for module in imported(path.read_text(encoding="utf-8")):
            assert module.partition(".")[0] in ALLOWED or module.startswith(own), path
