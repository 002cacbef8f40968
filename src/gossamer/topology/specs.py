"""From what people type to a topology, and how to add one to what they can type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import networkx as nx

from gossamer._options import read_options
from gossamer.topology import convert
from gossamer.topology.check import worker_count
from gossamer.topology.graph import Topology
from gossamer.topology.names import NAMES, spelt
from gossamer.topology.schedule import Schedule
from gossamer.topology.weights import RULE_NAMES, rule_name

Function = TypeVar("Function", bound=Callable[..., Topology | Schedule])


def register(function: Function) -> Function:
    """Register a graph in this process under its function's name, with - for _; can decorate a function.

    Its parameters are n, then options that may follow the name after colons, then seed and weights if it
    takes them. An installed package has entry points of the group gossamer.topologies instead: the command
    line and its worker processes know those too.
    """
    NAMES.add(function)
    return function


def make(spec: str | Topology | Schedule | nx.Graph, n: int, seed: int = 0) -> Topology | Schedule:
    """Build a topology from text such as "ring", "torus:2x4" or "random-regular:4@fastest".

    Options follow the name after colons and a rule for the weights after an @; `_` is as good
    as `-`. "file:PATH" reads edges from a file. A networkx graph is taken with Metropolis weights
    (`from_networkx` has others). Finished objects are checked for their size and returned.
    """
    n = worker_count(n)
    if isinstance(spec, nx.Graph):
        if spec.number_of_nodes() != n:
            raise ValueError(
                f"the networkx graph has {spec.number_of_nodes()} nodes, but there are {n} workers"
            )
        spec = convert.from_networkx(spec)
    if isinstance(spec, (Topology, Schedule)):
        if spec.n != n:
            raise ValueError(
                f"{spec.name} was built for {spec.n} workers, but there are {n}: make one of {n} workers"
            )
        return spec
    if not isinstance(spec, str):
        raise ValueError(
            f"a topology is a name such as 'ring', a Topology, a Schedule or a networkx graph, not {spec!r}"
        )
    text, weights = _split_weights(spec)
    written, colon, rest = text.partition(":")
    name, builder = NAMES.find(written)
    arguments = read_options(spec, name, builder.options, rest.split(":") if colon else [])
    if weights and not builder.weighted:
        raise ValueError(f"{name} sets its own weights: drop '@{weights}'")
    if weights:
        arguments["weights"] = weights
    if builder.seeded:
        arguments["seed"] = seed
    return builder.build(n, **arguments)


def _split_weights(spec: str) -> tuple[str, str | None]:
    text, at, weights = spec.rpartition("@")
    name, colon, _ = text.partition(":")
    builder = NAMES.get(spelt(name)) if colon else None
    path = builder is not None and builder.takes_rest
    if not at or (path and weights.replace("-", "_") not in RULE_NAMES):
        return spec, None  # a path may contain an @
    return text, rule_name(weights)
