"""Checks that several files of this package share."""

from __future__ import annotations

from typing import SupportsIndex

import numpy as np


def is_integer(value: object) -> bool:
    """Return whether a value is a whole number; True and 2.0 are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def worker_count(n: SupportsIndex) -> int:
    """Return n as a plain int, or raise a ValueError."""
    if not is_integer(n) or int(n) < 1:
        raise ValueError(f"the number of workers must be a whole number of at least 1, not {n!r}")
    return int(n)
