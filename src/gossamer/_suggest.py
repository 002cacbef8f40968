"""Errors that help: the name that was meant, and where the mistake is."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


def refuse_misspelt(given: Iterable[str], names: Iterable[str]) -> None:
    """Raise a ValueError for an argument whose name is nearly, and not quite, one of these."""
    known = list(names)
    for name in given:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
        if near and name not in known:
            raise ValueError(f"there is no argument {name!r}: did you mean {near[0]!r}?")


def unknown_name(what: str, name: str, names: Iterable[str]) -> ValueError:
    """Build the error for a name that does not exist; one that is like it comes first."""
    known = list(names)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    others = ", ".join(other for other in known if other not in near)
    hint = f"did you mean {near[0]!r}? There are also {others}" if near else f"there are {others}"
    return ValueError(f"unknown {what} {name!r}: {hint}")


@contextmanager
def located(place: str) -> Iterator[None]:
    """Say where the mistake of a ValueError raised inside is."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
