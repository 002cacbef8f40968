"""What an algorithm is: frozen hyper-parameters, an explicit state, and a round."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any, ClassVar, Literal

from torch import Tensor

from gossamer import compress
from gossamer._options import options_of, read_options
from gossamer.compress import Compressor
from gossamer.compress.base import draws_inside
from gossamer.compress.layout import Layout
from gossamer.errors import TheoryWarning
from gossamer.rounds.phase import StepsAndPhases
from gossamer.rounds.view import View
from gossamer.rounds.worker import Worker
from gossamer.topology import Schedule, Topology

Order = Literal["adapt-then-combine", "combine-then-adapt"]
Gamma = float | Literal["auto"]
Promise = Literal["unbiased", "delta"]  # what the theorem of an algorithm asks of a compressor
Compress = Callable[[Tensor], Tensor]  # v -> C(v)

REFERENCE = Layout(("matrix",), ((64, 64),))  # where a compressor's promise is looked up

# What a round costs, for tables, unless a class says otherwise: d parameters, messages of B bytes.
COSTS = {"phases": "1", "memory": "none", "bytes": "degree × B"}


class NeighbourMemory:
    """A state that keeps something of each neighbour: how it follows edges that come and go.

    Others are then in the middle of their rounds and cannot take part in a `rewire`. What a worker must know
    of a new neighbour travels beside the rounds, as a copy in full.
    """

    def copy(self, worker: Worker) -> Tensor | None:
        """Return what a new neighbour must know of this worker; by default nothing."""
        return None

    def become(self, worker: Worker, copy: Tensor) -> None:
        """Show what another worker shows, whose model this one has taken.

        Its neighbours then begin without a difference. A copy that is equal to the model itself would not do:
        it may be far from all others in a few entries, where a compressor lets it follow only slowly.
        """

    def known(self, worker: Worker) -> list[int]:
        """Return the neighbours of which something is kept."""
        return []

    def meet(self, worker: Worker, j: int, copy: Tensor | None) -> None:
        """Begin to know neighbour j by its copy; without one, both have the values of the common start."""

    def part(self, worker: Worker, j: int) -> None:
        """Forget neighbour j."""

    def believed(self, worker: Worker, j: int) -> tuple[list[Tensor], list[Tensor]]:
        """Return what neighbour j should believe of this worker, and what is believed of j."""
        return [], []

    def catch_up(self, worker: Worker, C: Compressor, j: int, messages: Mapping[str, Tensor]) -> None:
        """Take what neighbour j sent in an earlier round, before its copy was here."""


class Algorithm(ABC):
    """A frozen dataclass whose `round` runs unchanged in every driver.

    The state is a dataclass of tensors, numbers, and lists, dicts or dataclasses of those: what
    it holds is what a checkpoint holds.
    """

    examples: ClassVar[dict[str, str]] = {}  # what people may type, and what it is; none: no name
    spec_options: ClassVar[tuple[str, ...]] = ()  # fields whose values may follow the name after colons
    costs: ClassVar[dict[str, str]] = {}  # where it differs from COSTS
    varying_graphs: ClassVar[bool] = True  # works when W changes from round to round
    directed_graphs: ClassVar[bool] = True  # works when W is not symmetric
    reaches_consensus: ClassVar[bool] = True  # brings workers with different values to their average
    in_step: ClassVar[bool] = False  # both ends of an edge must be in the same round
    reaches_all: ClassVar[bool] = False  # every round is with all workers, whatever the graph
    different_starts: ClassVar[dict[str, str]] = {}  # options for workers that start from different values

    @classmethod
    def read_spec(cls, name: str, texts: Sequence[str]) -> dict[str, Any]:
        """Return the options that follow the name after colons: {"rank": 2} for powergossip:2."""
        return read_options(":".join([name, *texts]), name, options_of(cls, cls.spec_options), texts)

    @property
    def sends_before_gradient(self) -> bool:
        """Whether the first phase needs no gradient and changes nothing before messages arrive.

        Such a round may be started before the gradient is computed, with the same result. With overlap > 1
        it starts several local steps earlier; the step that it asks for then applies all of them.
        """
        return False

    @abstractmethod
    def start(self, worker: Worker) -> Any:  # noqa: ANN401 - every algorithm has its own state
        """Return the state before the first round."""

    @abstractmethod
    def round(self, worker: Worker, state: Any) -> StepsAndPhases:  # noqa: ANN401
        """Do one optimizer step and one exchange."""

    def local(self, worker: Worker, state: Any) -> StepsAndPhases:  # noqa: ANN401
        """Do an optimizer step between two rounds, without messages."""
        yield worker.step()

    def rewire(self, worker: Worker, state: Any, before: View) -> StepsAndPhases:  # noqa: ANN401
        """Prepare the state for other members or edges: `worker.view` in place of `before`.

        By default the state holds nothing about neighbours, and there is nothing to do.
        """
        yield from ()

    def where_edges_change(self) -> Algorithm:
        """Return the algorithm for a network whose edges come and go; raise a ValueError if there is none.

        One with a choice of `memory` keeps one replica per neighbour: a sum cannot be split again.
        """
        memory = getattr(self, "memory", None)
        if memory == "sum":
            raise ValueError(
                f"{type(self).__name__} with memory='sum' cannot follow edges that come and go; leave memory "
                f"out, or say memory='replicas'"
            )
        if memory is None:
            return self
        made = copy(self)
        object.__setattr__(made, "memory", "replicas")  # not `replace`, which would warn of the theory again
        return made

    def gossip(self, x: Tensor, memory: Tensor, W: Tensor, C: Compress, gamma: float) -> None:
        """Do a round's exchange for all workers at once, one row per worker, without steps, in place.

        `memory` is what the algorithm remembers, 0 at first; C compresses every row. It is what the search
        for gamma="auto" runs, so only algorithms with such a gamma have it.
        """
        raise ValueError(f"{type(self).__name__} has no gamma to find")

    def averages_gradients(self, every: int) -> bool:
        """Return whether a step uses the average of one gradient per worker."""
        return False

    def shared_draws(self) -> list[Tensor]:
        """Return samples of what workers draw or compute separately and must have alike, for comparison.

        Workers that get other bits are refused at the start. By default it is what the compressor shares.
        """
        return draws_inside(self)

    def require(self, topology: Topology | Schedule) -> None:
        """Raise a ValueError if the algorithm cannot run on this graph."""
        name = type(self).__name__
        if topology.varying and not self.varying_graphs:
            raise ValueError(
                f"{name} keeps a running sum over its neighbours, which needs a constant graph; "
                f"'{topology.name}' changes. Use DPSGD, DeepSqueeze or PowerGossip, or a constant graph."
            )
        if topology.directed and not self.directed_graphs:
            raise ValueError(f"{name} needs both directions of every edge; '{topology.name}' is directed")

    def require_period(self, every: int, overlap: int) -> None:
        """Raise a ValueError if messages cannot fly during the last `overlap` of a round's `every` steps."""
        if not isinstance(every, int) or every < 1:
            raise ValueError(f"every={every!r}: the number of optimizer steps per round, 1 or more")
        if overlap and not self.sends_before_gradient:
            raise ValueError(
                f"{type(self).__name__} as it is needs the gradient before its first message, so nothing can "
                f"overlap; use DPSGD, Choco or PowerGossip with order='combine-then-adapt'"
            )
        if not isinstance(overlap, int) or not 0 <= overlap <= every:
            raise ValueError(
                f"overlap={overlap!r}: the number of gradients during which messages fly, from 0 to "
                f"every={every}; raise every to exchange less often"
            )


def require_choice(option: str, given: str, *choices: str) -> None:
    """Raise a ValueError for a word that is none of these."""
    if given not in choices:
        raise ValueError(f"{option}={given!r}: use {' or '.join(map(repr, choices))}")


def require_order(order: str) -> None:
    """Raise a ValueError for an unknown order."""
    require_choice("order", order, "adapt-then-combine", "combine-then-adapt")


def require_gamma(gamma: Gamma, most: float = 1.0, *, auto: bool = False) -> None:
    """Raise a ValueError for an impossible consensus step size."""
    is_number = isinstance(gamma, (int, float)) and not isinstance(gamma, bool)
    if not (auto and gamma == "auto") and not (is_number and 0 < gamma <= most):  # type: ignore[operator]
        raise ValueError(
            f"gamma={gamma!r}: a number above 0 and at most {most:g}{', or auto' if auto else ''}"
        )


def resolved(gamma: Gamma) -> float:
    """Return gamma, which must have been found by now."""
    if isinstance(gamma, str):
        raise ValueError("gamma='auto' has not been found yet; gossamer.tune_gamma gives the number")
    return gamma


def require_common_start(worker: Worker, algorithm: Algorithm) -> None:
    """Raise a ValueError if workers start with different values where replicas start from a common x_0."""
    if not worker.common_start:
        raise ValueError(f"{type(algorithm).__name__} needs the same start values on all workers")


def _warn_of_theory(algorithm: Algorithm, compressor: Compressor, needs: Promise) -> None:
    """Warn where the theorem of an algorithm does not cover a compressor."""
    if compressor.unbiased if needs == "unbiased" else compressor.delta(REFERENCE) > 0:
        return
    promise = "an unbiased compressor" if needs == "unbiased" else "a contraction"
    option = compressor.contraction_option if needs == "delta" else ""
    remedy = f"; {type(compressor).__name__} takes {option}" if option else ""
    name = type(algorithm).__name__
    text = f"the theory of {name} needs {promise}, which {compressor} does not promise{remedy}"
    warnings.warn(text, TheoryWarning, stacklevel=5)


def take_compressor(algorithm: Algorithm, compressor: Compressor | str, needs: Promise | None = None) -> None:
    """Make a text such as "topk:0.01" a compressor, and warn where no theorem covers it."""
    made = compress.make(compressor)
    object.__setattr__(algorithm, "compressor", made)  # the dataclass is frozen from here on
    if needs:
        _warn_of_theory(algorithm, made, needs)
