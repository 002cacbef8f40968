"""Trees drawn at random: networkx has named its own function differently from version to version."""

from __future__ import annotations

import random

import networkx as nx


def random_tree(n: int, seed: int) -> nx.Graph:
    """Return a tree of n >= 2 nodes, every labelled tree as likely as any other (Prüfer 1918)."""
    draw = random.Random(seed)
    return nx.from_prufer_sequence([draw.randrange(n) for _ in range(n - 2)])
