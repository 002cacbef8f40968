"""Numbers as people read them: 12.3 MB, 1 min 5 s, 96.3 %."""

from __future__ import annotations

import math

SPACE = "\u00a0"  # a number and its unit stay on one line
MISSING = "–"
UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def finite(x: object) -> float | None:
    """Return a number as a float, and None for everything else: missing, text, infinite."""
    if isinstance(x, bool) or not isinstance(x, (int, float)) or not math.isfinite(x):
        return None
    return float(x)


def number(x: object, digits: int = 4) -> str:
    """Format a number with so many significant digits and a true minus sign."""
    value = finite(x)
    if value is None:
        return MISSING
    mantissa, e, exponent = f"{value:.{digits}g}".partition("e")
    if e and 0 <= int(exponent) < 7:
        return whole(value)
    mantissa = mantissa.replace("-", "−")
    if not e:
        return mantissa
    power = f"10{str(int(exponent)).translate(SUPERSCRIPTS)}"
    return power if mantissa == "1" else f"{mantissa}{SPACE}×{SPACE}{power}"


def whole(n: object) -> str:
    """Format a count, its thousands set apart."""
    value = finite(n)
    return MISSING if value is None else f"{value:,.0f}".replace(",", SPACE).replace("-", "−")


def size(n: object) -> str:
    """Format bytes: 999 B, 12.3 kB."""
    x = finite(n)
    if x is None:
        return MISSING
    unit = 0
    while x >= 999.5 and unit < len(UNITS) - 1:
        x, unit = x / 1000, unit + 1
    text = f"{x:.0f}" if unit == 0 or x >= 99.95 else f"{x:.3g}"
    return f"{text}{SPACE}{UNITS[unit]}"


def duration(seconds: object) -> str:
    """Format a time by its two largest units: 12.3 s, 1 min 5 s, 2 h 3 min."""
    s = finite(seconds)
    if s is None:
        return MISSING
    if s < 59.95:
        return f"{s:.3g}{SPACE}s" if s >= 1 else f"{s:.2g}{SPACE}s"
    for big, large, small, length in (("min", 60, "s", 3600), ("h", 3600, "min", 86400)):
        step = large // 60
        total = round(s / step)
        if total * step < length:
            return _two(total // 60, big, total % 60, small)
    hours = round(s / 3600)
    return _two(hours // 24, "d", hours % 24, "h")


def _two(a: int, big: str, b: int, small: str) -> str:
    return f"{a}{SPACE}{big}" + (f"{SPACE}{b}{SPACE}{small}" if b else "")


def is_share(metric: str | None) -> bool:
    """Return whether a metric is a fraction, shown in per cent."""
    return metric is not None and "accuracy" in metric.lower()


def measure(metric: str | None, x: object) -> str:
    """Format a value of a metric."""
    value = finite(x)
    if value is not None and is_share(metric):
        return f"{100 * value:.1f}{SPACE}%"
    return number(value)


def times(x: object) -> str:
    """Format a ratio: 45, 1.3."""
    value = finite(x)
    if value is None:
        return MISSING
    return f"{value:.1f}".removesuffix(".0") if value < 9.95 else whole(value)
