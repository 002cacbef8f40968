from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest

from gossamer import topology as tp
from gossamer.topology import NAMES, Schedule, Topology, make

SPECS: dict[str, tuple[int, Callable[[], Topology | Schedule]]] = {
    "ring": (8, lambda: tp.ring(8)),
    "chain": (8, lambda: tp.chain(8)),
    "torus": (8, lambda: tp.torus(8)),
    "torus:4x2": (8, lambda: tp.torus(8, rows=4)),
    "grid:2x4": (8, lambda: tp.grid(8, rows=2)),
    "star": (5, lambda: tp.star(5)),
    "complete": (5, lambda: tp.complete(5)),
    "exponential": (9, lambda: tp.exponential(9)),
    "hypercube": (8, lambda: tp.hypercube(8)),
    "random-regular": (8, lambda: tp.random_regular(8, seed=3)),
    "random-regular:4": (9, lambda: tp.random_regular(9, 4, seed=3)),
    "random_regular:4": (9, lambda: tp.random_regular(9, 4, seed=3)),
    "small-world": (9, lambda: tp.small_world(9, seed=3)),
    "small-world:2": (9, lambda: tp.small_world(9, 2, seed=3)),
    "small_world:4:0.5": (9, lambda: tp.small_world(9, 4, 0.5, seed=3)),
    "social": (32, tp.social),
    "ring@fastest": (5, lambda: tp.ring(5, "fastest")),
    "star@max-degree": (5, lambda: tp.star(5, "max_degree")),
    "random-regular:4@uniform": (9, lambda: tp.random_regular(9, 4, 3, "uniform")),
    "one-peer-exponential": (6, lambda: tp.one_peer_exponential(6)),
    "one_peer_exponential": (6, lambda: tp.one_peer_exponential(6)),
    "random-matching": (6, lambda: tp.random_matching(6, seed=3)),
}


@pytest.mark.parametrize("spec", SPECS)
def test_text_builds_what_the_function_builds(spec):
    n, build = SPECS[spec]
    made, built = make(spec, n, seed=3), build()
    assert made.fingerprint() == built.fingerprint()
    assert made.name == built.name
    assert make(made.name, n, seed=3).fingerprint() == built.fingerprint()


def test_every_name_is_tried_above():
    tried = {spec.partition("@")[0].partition(":")[0].replace("_", "-") for spec in SPECS}
    assert tried == set(NAMES) - {"file"}


def test_every_name_but_the_files_is_a_function_here():
    assert all(callable(getattr(tp, name.replace("-", "_"))) for name in NAMES if name != "file")
    assert set(tp.__all__) <= set(dir(tp))


def test_files_keep_the_odd_letters_of_their_path(tmp_path):
    path = tmp_path / "my_graph@home:1.txt"
    path.write_text("0 1\n1 2\n", encoding="utf-8")
    made = make(f"file:{path}", 3)
    assert isinstance(made, Topology)
    assert np.array_equal(made.W, tp.chain(3).W)
    assert make(f"file:{path}@fastest", 3).name == f"file:{path}@fastest"
    assert make(make(f"file:{path}@max-degree", 3).name, 3).name == f"file:{path}@max_degree"
    with pytest.raises(ValueError, match="disconnected"):
        make(f"file:{path}", 4)


@pytest.mark.parametrize("made", [tp.ring(4), tp.random_matching(4)])
def test_objects_pass_if_they_fit(made):
    assert isinstance(made, (Topology, Schedule))
    assert make(made, 4) is made
    with pytest.raises(ValueError, match=r"the networkx graph has 4 nodes, but there are 5 workers"):
        make(nx.cycle_graph(4), 5)
    with pytest.raises(ValueError, match=rf"{made.name} was built for 4 workers, but there are 5"):
        make(made, 5)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("rign", r"unknown topology 'rign': did you mean 'ring'\? There are also chain, torus, .*, file"),
        ("", r"unknown topology ''"),
        ("expander", r"did you mean"),
        ("small-wrold:4", r"unknown topology 'small-wrold': did you mean 'small-world'\?"),
        ("torus:2x4", r"a 2x4 torus has 8 workers, not 7"),
        ("torus:2by4", r"cannot read 'torus:2by4': write torus\[:ROWSxCOLUMNS\]"),
        ("grid:2x2x2", r"cannot read 'grid:2x2x2'"),
        ("grid:7x", r"cannot read 'grid:7x'"),
        ("torus:-1x-7", r"rows of a torus must be"),
        ("ring:7", r"cannot read 'ring:7': write ring$"),
        ("ring:", r"cannot read 'ring:': write ring$"),
        ("small-world:4:0.1:2", r"write small-world\[:NEIGHBOURS\]\[:REWIRE\]"),
        ("small-world:x", r"cannot read 'small-world:x'"),
        ("ring@fast", r"unknown weights 'fast': did you mean 'fastest'\?"),
        ("ring@", r"unknown weights ''"),
        ("ring@given", r"weights='given' needs the numbers"),
        ("random-matching@fastest", r"random-matching sets its own weights: drop '@fastest'"),
        ("file", r"file needs a path: write file:PATH"),
        ("file:", r"file needs a path"),
        (7, r"a topology is a name such as 'ring', a Topology, a Schedule or a networkx graph, not 7"),
    ],
)
def test_text_that_means_nothing_is_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        make(spec, 7)


def test_the_number_of_workers_is_checked():
    with pytest.raises(ValueError, match="number of workers"):
        make("ring", 0)
