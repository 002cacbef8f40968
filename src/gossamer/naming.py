"""Help for mistyped names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(kind: str, name: str, known: Iterable[str]) -> str:
    """Return the error text for an unknown name, with the likeliest one first."""
    names = list(known)
    close = get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"no {kind} is called '{name}'; {hint}there are: {', '.join(names)}"
