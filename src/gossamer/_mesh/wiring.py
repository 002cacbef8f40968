"""Which edges a member wants, given who is there.

The graph is made for all known members, dead or alive. Where some are gone, the living neighbours of each
connected group of them are joined in a cycle, so that the graph stays connected, and share the weight that
the lost edges had. A ring without one of its workers is a ring again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from gossamer.topology import Schedule, Topology

Graph = Callable[[int], Topology | Schedule]  # the graph of n workers


class Wiring:
    """Proposes edges and weights; both ends of an edge use the smaller of their two proposals."""

    def __init__(self, graph: Graph) -> None:
        self._graph = lru_cache(maxsize=4)(graph)

    def edges(self, me: int, known: Sequence[int], alive: frozenset[int]) -> dict[int, float]:
        """Return the weight that this member proposes for each edge that it wants."""
        ids = sorted(known)
        graph = self._graph(len(ids))
        places = {member: i for i, member in enumerate(ids)}
        row = {ids[i]: w for i, w in graph.weights(places[me], 0).items() if ids[i] != me and w > 0}
        kept = {j: w for j, w in row.items() if j in alive}
        lost = sum(row.values()) - sum(kept.values())
        gone = [j for j in row if j not in alive]
        repairs = sorted({j for j in self._repairs(me, gone, ids, alive) if j not in kept})
        return kept | {j: lost / len(repairs) for j in repairs}

    def _repairs(self, me: int, gone: Sequence[int], ids: Sequence[int], alive: frozenset[int]) -> set[int]:
        """Return who takes the place of the neighbours that are gone."""
        found: set[int] = set()
        for start in gone:
            edge_of_gap = sorted(self._around(start, ids, alive))
            at = edge_of_gap.index(me)
            found |= {edge_of_gap[at - 1], edge_of_gap[(at + 1) % len(edge_of_gap)]} - {me}
        return found

    def _around(self, start: int, ids: Sequence[int], alive: frozenset[int]) -> set[int]:
        """Return the living neighbours of the connected group of the gone that `start` belongs to."""
        graph, places = self._graph(len(ids)), {member: i for i, member in enumerate(ids)}
        seen, around, to_visit = {start}, set(), [start]
        while to_visit:
            for i in graph.weights(places[to_visit.pop()], 0):
                j = ids[i]
                if j in alive:
                    around.add(j)
                elif j not in seen:
                    seen.add(j)
                    to_visit.append(j)
        return around
