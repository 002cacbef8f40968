"""One graph with its mixing matrix."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, final

import networkx as nx
import numpy as np
import numpy.typing as npt

from gossamer.topology.check import is_integer
from gossamer.topology.spectrum import Spectrum, spectrum_of

Matrix = npt.NDArray[np.float64]
Links = npt.NDArray[np.bool_]

TOLERANCE = 1e-9  # how far sums and mirrored entries of W may be off


@final
@dataclass(frozen=True, eq=False, repr=False)
class Topology:
    """A constant mixing matrix: row i holds how worker i weighs what it receives.

    W is doubly stochastic, and symmetric unless `directed`. A disconnected graph is refused,
    unless it is `partial`: one round of a schedule, which need not connect all workers.
    """

    name: str
    W: Matrix
    directed: bool = False
    partial: bool = False
    varying: ClassVar[bool] = False

    def __post_init__(self) -> None:
        W = np.array(self.W, dtype=np.float64)
        _check_entries(W)
        if not self.directed:
            _check_symmetric(W)
            W = (W + W.T) / 2  # changes nothing but rounding: both ends of an edge use one number
        _check_sums(W)
        if not self.partial:
            check_connected(links_of(W), "the graph")
        W.setflags(write=False)
        object.__setattr__(self, "W", W)

    def __repr__(self) -> str:
        return f"Topology({self.name!r}, n={self.n}, directed={self.directed})"

    @property
    def n(self) -> int:
        """The number of workers."""
        return len(self.W)

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The sorted edges, (i, j) with i < j, or (sender, receiver) if directed."""
        links = self._links if self.directed else np.tril(self._links)
        return tuple((int(sender), int(receiver)) for sender, receiver in np.argwhere(links.T))

    @property
    def degrees(self) -> tuple[int, ...]:
        """How many others each worker receives from."""
        return tuple(int(degree) for degree in self._links.sum(axis=1))

    @property
    def diameter(self) -> int:
        """The most rounds that information needs from one worker to another."""
        if self.partial:
            check_connected(self._links, f"{self.name} has no diameter: it")
        kind = nx.DiGraph if self.directed else nx.Graph
        return int(nx.diameter(nx.from_numpy_array(self._links.T, create_using=kind)))

    @cached_property
    def spectrum(self) -> Spectrum:
        """The eigenvalues that decide how fast the workers agree."""
        return spectrum_of(self.W, directed=self.directed)

    def weights(self, rank: int, round: int = 0) -> dict[int, float]:  # noqa: A002
        """How `rank` weighs itself and its senders, in rank order; itself even with weight 0."""
        row = self.W[self._checked(rank)]
        return {int(j): float(row[j]) for j in np.union1d(np.flatnonzero(row > 0), rank)}

    def senders(self, rank: int, round: int = 0) -> tuple[int, ...]:  # noqa: A002
        """Return the workers that `rank` receives from, in rank order, without itself."""
        return tuple(int(j) for j in np.flatnonzero(self._links[self._checked(rank)]))

    def receivers(self, rank: int, round: int = 0) -> tuple[int, ...]:  # noqa: A002
        """Return the workers that `rank` sends to, in rank order, without itself."""
        return tuple(int(j) for j in np.flatnonzero(self._links[:, self._checked(rank)]))

    def at(self, round: int) -> Topology:  # noqa: A002
        """Return the graph of a round: always this one."""
        return self

    def fingerprint(self) -> str:
        """Identify the mixing matrix, whatever its name, so that workers can compare theirs."""
        content = f"{self.n} {self.directed} ".encode() + self.W.astype("<f8").tobytes()
        return hashlib.sha256(content).hexdigest()[:16]

    @cached_property
    def _links(self) -> Links:
        return links_of(self.W)

    def _checked(self, rank: int) -> int:
        if not is_integer(rank) or not 0 <= rank < self.n:
            raise ValueError(f"there is no worker {rank!r}: {self.name} has the workers 0 to {self.n - 1}")
        return rank


def links_of(W: Matrix) -> Links:
    """Return who receives from whom: the positive entries of W off the diagonal."""
    links = W > 0
    np.fill_diagonal(links, val=False)
    return links


def check_connected(links: Links, what: str) -> None:
    """Refuse a graph in more than one piece, naming the pieces.

    Directions do not matter: as many messages enter a set of workers as leave it when W is
    doubly stochastic (in weight), so that a directed graph in one piece is strongly connected.
    """
    pieces = [sorted(piece) for piece in nx.connected_components(nx.from_numpy_array(links | links.T))]
    if len(pieces) > 1:
        named = _listed(("{" + _listed(piece, most=8) + "}" for piece in sorted(pieces)), most=4)
        raise ValueError(
            f"{what} is disconnected, in {len(pieces)} components: {named}; add edges between them"
        )


def _listed(items: Iterable[object], most: int) -> str:
    texts = [str(item) for item in items]
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return ", ".join(texts[:most]) + more


def _check_entries(W: Matrix) -> None:
    if W.ndim != 2 or W.shape[0] != W.shape[1] or not W.size:
        shape = "x".join(map(str, W.shape)) or "a single number"
        raise ValueError(f"W is {shape}: a mixing matrix needs one row and one column per worker")
    wrong = np.argwhere(~(np.isfinite(W) & (W >= 0)))
    if len(wrong):
        i, j = wrong[0]
        raise ValueError(f"W[{i}, {j}] is {W[i, j]}: weights must be finite and not negative")


def _check_symmetric(W: Matrix) -> None:
    wrong = np.argwhere(np.abs(W - W.T) > TOLERANCE)
    if len(wrong):
        i, j = wrong[0]
        raise ValueError(
            f"W[{i}, {j}] is {W[i, j]} but W[{j}, {i}] is {W[j, i]}: make the two equal, "
            "or build a Topology with directed=True"
        )


def _check_sums(W: Matrix) -> None:
    for axis, what in ((1, "row"), (0, "column")):
        sums = W.sum(axis=axis)
        wrong = np.flatnonzero(np.abs(sums - 1) > TOLERANCE)
        if len(wrong):
            raise ValueError(
                f"{what} {wrong[0]} of W sums to {sums[wrong[0]]:.6g}, not 1: "
                "each worker's weights, its own included, must sum to 1, and so must each column"
            )
