"""A topology is a function; what people may type for it follows from the function's signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gossamer._options import Option, options_of
from gossamer._options import usage as usage_of
from gossamer.topology.graph import Topology
from gossamer.topology.schedule import Schedule

ALWAYS_KNOWN = ("n", "seed", "weights")  # parameters that are not typed after a colon


@dataclass(frozen=True)
class Builder:
    """How the graph of a name is built, and which options may follow it, each after a colon."""

    build: Callable[..., Topology | Schedule]
    options: Mapping[str, Option]
    seeded: bool  # it draws from the seed of the run
    weighted: bool  # a rule for the weights may follow an @
    examples: Mapping[str, str]  # the name, and what it is
    usage: str  # as torus[:ROWSxCOLUMNS]

    @property
    def takes_rest(self) -> bool:
        """Whether an option is all the rest of a text, such as a path, which may hold colons and an @."""
        return any(option.rest for option in self.options.values())


def builder_of(function: object) -> Builder:
    """Return what is known of a function from its name, signature and docstring."""
    if not inspect.isfunction(function):
        raise ValueError(f"{function!r} is no function: a topology is a function of the number of workers, n")
    parameters = list(inspect.signature(function).parameters)
    summary = (inspect.getdoc(function) or "").partition("\n")[0]
    if parameters[:1] != ["n"] or not summary:
        raise ValueError(
            f"{function.__name__} needs n, the number of workers, as its first parameter, and a docstring "
            f"whose first line says what the graph is"
        )
    name = function.__name__.replace("_", "-")
    options = options_of(function, [p for p in parameters if p not in ALWAYS_KNOWN])
    return Builder(
        build=function,
        options=options,
        seeded="seed" in parameters,
        weighted="weights" in parameters,
        examples={name: summary},
        usage=usage_of(name, options),
    )
