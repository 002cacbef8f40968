"""How figures look: colours that everybody can distinguish, on paper and on a light or dark page.

A figure for a page is drawn in placeholder colours: `svg.inline` replaces each by the CSS variable of
its name, so that the page chooses the colours.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import matplotlib as mpl
from matplotlib.font_manager import fontManager

FONTS = ("Helvetica", "Arial", "Liberation Sans", "DejaVu Sans")  # the last comes with matplotlib
SIZE = 9.0


@dataclass(frozen=True)
class Palette:
    """The colours of a figure: text, lesser text, grid lines, background, runs, and few to many bytes."""

    ink: str
    muted: str
    grid: str
    surface: str
    heat: str
    series: tuple[str, ...]
    levels: tuple[str, ...]

    def named(self) -> dict[str, str]:
        """Return every colour by the name of its CSS variable."""
        plain = {key: value for key, value in asdict(self).items() if isinstance(value, str)}
        series = {f"series-{i}": colour for i, colour in enumerate(self.series)}
        return plain | series | {f"level-{i}": colour for i, colour in enumerate(self.levels)}


# The hues of Okabe and Ito (2008), darker or lighter where they would fade into the background.
LIGHT = Palette(
    ink="#1b1e23",
    muted="#5b626d",
    grid="#e3e5e9",
    surface="#ffffff",
    heat="#0072b2",
    series=("#0072b2", "#d55e00", "#009e73", "#c06a9a", "#b87900", "#3a94cc", "#30343b"),
    levels=("#9fc4de", "#64a6d1", "#2f84bd", "#005f99", "#003a66"),
)
DARK = Palette(
    ink="#e8eaed",
    muted="#9ba3af",
    grid="#2c3138",
    surface="#15171b",
    heat="#56b4e9",
    series=("#3f97d8", "#ee7a33", "#22b98c", "#dc8fbc", "#e6a817", "#94d0f5", "#d5d9df"),
    levels=("#33526b", "#3f739b", "#5299ca", "#86c2ea", "#d6ecfb"),
)
NAMES = tuple(LIGHT.named())
PAGE = Palette(
    ink="#fe0100",
    muted="#fe0101",
    grid="#fe0102",
    surface="#fe0103",
    heat="#fe0104",
    series=tuple(f"#fe02{i:02x}" for i in range(len(LIGHT.series))),
    levels=tuple(f"#fe03{i:02x}" for i in range(len(LIGHT.levels))),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.2, 1.6)), (0, (6, 2, 1.2, 2)))


def line(palette: Palette, i: int) -> dict[str, Any]:
    """Return how the i-th run is drawn: by colour and by mark, so that grey prints can be read."""
    n = len(palette.series)
    return {
        "color": palette.series[i % n],
        "linestyle": DASHES[i // n % len(DASHES)],
        "marker": MARKERS[i % len(MARKERS)],
        "linewidth": 1.6,
        "markersize": 3.8,
        "markeredgewidth": 0,
    }


@contextmanager
def theme(palette: Palette) -> Iterator[None]:
    """Draw and save figures in here; afterwards matplotlib's settings are as before."""
    with mpl.rc_context(_settings(palette)), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # names may be in any script
        yield


def _settings(palette: Palette) -> dict[Any, Any]:
    installed = {font.name for font in fontManager.ttflist}
    return {
        "font.family": [name for name in FONTS if name in installed],
        "font.size": SIZE,
        "axes.titlesize": SIZE,
        "axes.titlelocation": "left",
        "axes.titlepad": 8,
        "axes.titlecolor": palette.ink,
        "axes.labelsize": SIZE,
        "axes.labelcolor": palette.muted,
        "axes.edgecolor": palette.muted,
        "axes.facecolor": "none",
        "axes.linewidth": 0.6,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.unicode_minus": True,
        "grid.color": palette.grid,
        "grid.linewidth": 0.6,
        "xtick.color": palette.muted,
        "ytick.color": palette.muted,
        "xtick.labelsize": SIZE - 0.5,
        "ytick.labelsize": SIZE - 0.5,
        "xtick.major.size": 3,
        "ytick.major.size": 0,
        "xtick.minor.size": 0,
        "ytick.minor.size": 0,
        "text.color": palette.ink,
        "legend.fontsize": SIZE - 0.5,
        "legend.frameon": False,
        "legend.handlelength": 2.4,
        "figure.facecolor": "none",
        "savefig.facecolor": "none" if palette is PAGE else palette.surface,
        "text.parse_math": False,  # a $ in somebody's name is a $
        "svg.fonttype": "none",
        "svg.hashsalt": "gossamer",
        "figure.constrained_layout.use": True,
    }
