"""The bits of every algorithm with every compressor, to show that a change of the code has changed none.

    python -m tests.digests before.json             write a digest for every row, simulated and over gloo
    python -m tests.digests after.json before.json  do it again and say which rows differ

They hold for one machine and one version of torch: another processor rounds differently.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gossamer import topology
from gossamer._random import generator
from gossamer.algorithms import Algorithm
from gossamer.compress.layout import Layout
from gossamer.topology import Schedule, Topology
from tests.support.cases import COMPRESSED, COMPRESSORS, PLAIN
from tests.support.problem import simulated
from tests.support.processes import run_processes
from tests.support.same_bits import GRAPHS, STEPS, all_cases, cases, spread, varied

EARLY = {"dpsgd": PLAIN["dpsgd"], "choco": COMPRESSED["choco-overlapped"](COMPRESSORS["topk"])}
DTYPES = (torch.float64, torch.bfloat16)


def digest(tensors: Iterable[Tensor]) -> str:
    found = hashlib.sha256()
    for t in tensors:
        found.update(t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def messages() -> dict[str, str]:
    """Return what every compressor makes of one vector: the bytes on the wire."""
    layout = Layout(("conv", "matrix", "bias", "scale"), ((4, 3, 3), (12, 8), (8,), ()))
    v = torch.randn(layout.size, generator=torch.Generator().manual_seed(0))
    return {
        f"message {name}": digest([C.encode(v, layout, generator(0, "digest"))])
        for name, C in COMPRESSORS.items()
    }


def simulations() -> dict[str, str]:
    rows: dict[str, tuple[Algorithm, Topology | Schedule, dict[str, Any]]] = {}
    for place, graph in GRAPHS.items():
        rows |= {f"{place} {name}": (a, graph, {}) for name, a in cases(place).items()}
    ring = GRAPHS["ring"]
    for dtype in DTYPES:
        rows |= {f"{dtype} {name}": (a, ring, {"dtype": dtype}) for name, a in EARLY.items()}
    rows |= {f"every 2 {name}": (a, ring, {"every": 2}) for name, a in (PLAIN | EARLY).items()}
    rows |= {name: (a, ring, {"every": 3, "overlap": 2}) for name, a in spread().items()}
    rows["matching"] = (PLAIN["powergossip"], topology.random_matching(4), {})
    found = {}
    for name, (algorithm, graph, options) in rows.items():
        run = simulated(algorithm, graph, 2 * STEPS, **options)
        found[f"simulated {name}"] = digest([*run.x, torch.tensor(run.bytes_sent)])
    return found


def over_gloo() -> dict[str, str]:
    found = {}
    for graph in GRAPHS:
        results = run_processes(GRAPHS[graph].n, all_cases, graph)
        for name in cases(graph):
            parts = [t for x, sent in (r[name] for r in results) for t in (x, torch.tensor(sent))]
            found[f"gloo {graph} {name}"] = digest(parts)
    results = run_processes(4, varied)
    return found | {f"gloo {name}": digest(r[name] for r in results) for name in results[0]}


def main(path: str, before: str | None = None) -> int:
    torch.set_num_threads(1)
    rows = messages() | simulations() | over_gloo()
    Path(path).write_text(json.dumps(rows, indent=0, sort_keys=True) + "\n")
    whole = hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()[:16]
    sys.stdout.write(f"{len(rows)} rows, {whole}\n")
    known = json.loads(Path(before).read_text()) if before else rows
    different = sorted(name for name in known if known[name] != rows.get(name))  # new rows are no difference
    for name in different:
        sys.stdout.write(f"differs: {name}\n")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
