"""Quantities as people write them: "10mbit", "20 ms"."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from math import inf
from numbers import Real

from gossamer._suggest import located, unknown_name

BITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
# Divide by these: 20 / 1e3 is correctly rounded, 20 * 1e-3 is not.
PER_SECOND = {"us": 1e6, "ms": 1e3, "s": 1.0}

_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(\D*)", re.ASCII)


def bits_per_second(value: float | str) -> float:
    """Read a bandwidth: "10mbit", "1.5 Gbit/s", "unlimited", or a number of bit/s."""
    if isinstance(value, str) and value.strip().lower() == "unlimited":
        return inf
    number, unit = _quantity("bandwidth", value, BITS, "bit", "mbit")
    if not number > 0:
        raise ValueError(f"bandwidth {value!r}: it must be above 0, or 'unlimited'")
    return number * BITS[unit]


def seconds(value: float | str) -> float:
    """Read a time: "20ms", "150 us", "0.5s", or a number of seconds."""
    number, unit = _quantity("time", value, PER_SECOND, "s", "ms")
    if not 0 <= number < inf:
        raise ValueError(f"time {value!r}: it must be finite and not negative")
    return number / PER_SECOND[unit]


def _quantity(
    what: str, value: float | str, units: Mapping[str, float], plain: str, usual: str
) -> tuple[float, str]:
    """Split a text into its number and unit; a number by itself has the plain unit."""
    if isinstance(value, Real) and not isinstance(value, bool):
        return float(value), plain
    found = _QUANTITY.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{what} {value!r}: write a number with its unit, such as '10{usual}'")
    number, unit = found.groups()
    if not unit:
        raise ValueError(f"{what} {value!r} has no unit: write '{number}{usual}' or the like")
    # "mbps" stays unknown: for some it means bits, for others (tc) bytes.
    name = re.sub(r"(?<=bit)(/s|ps)$", "", unit)
    if name not in units:
        with located(f"{what} {value!r}"):
            raise unknown_name("unit", unit, units)
    return float(number), name


def show_span(values: Iterable[float], show: Callable[[float], str]) -> str:
    """Show the least and the most of some values: "5 ms to 20 ms", or "5 ms" if they are equal."""
    ordered = sorted(values)
    least, most = show(ordered[0]), show(ordered[-1])
    return least if least == most else f"{least} to {most}"


def show_rate(v: float) -> str:
    """Show a bandwidth: "10 Mbit/s"."""
    if v == inf:
        return "unlimited"
    unit = next((u for u in ("Gbit", "Mbit", "kbit") if v >= BITS[u.lower()]), "bit")
    return f"{v / BITS[unit.lower()]:g} {unit}/s"


def show_time(v: float) -> str:
    """Show a time: "20 ms"."""
    unit = next((u for u in ("s", "ms") if v * PER_SECOND[u] >= 1), "us") if v else "ms"
    return f"{v * PER_SECOND[unit]:g} {unit}"
