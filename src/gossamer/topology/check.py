"""Checks that several files of this package share."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import SupportsIndex

import numpy as np


def is_integer(value: object) -> bool:
    """Tell whether a value is a whole number; True and 2.0 are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def worker_count(n: SupportsIndex) -> int:
    """Return n as a plain int, or refuse it."""
    if not is_integer(n) or int(n) < 1:
        raise ValueError(f"the number of workers must be a whole number of at least 1, not {n!r}")
    return int(n)


def unknown_name(what: str, name: str, names: Collection[str]) -> ValueError:
    """Build the error for a name that does not exist; the nearest one that does comes first."""
    nearest = difflib.get_close_matches(name, names, n=1, cutoff=0.0)[0]
    others = [other for other in names if other != nearest]
    return ValueError(
        f"unknown {what} {name!r}: did you mean {nearest!r}? There are also {', '.join(others)}"
    )
