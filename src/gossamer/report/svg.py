"""Figures as SVG text inside a page: the page's fonts and colours, and no id twice."""

from __future__ import annotations

import html
import io
import re

from matplotlib.figure import Figure

from gossamer.report.style import NAMES, PAGE

NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}
VARIABLES = dict(zip(PAGE.named().values(), NAMES, strict=True))


def inline(figure: Figure, prefix: str, title: str = "") -> str:
    """Return a figure drawn with the PAGE palette as an element for HTML; `title` is read aloud.

    All ids in it start with `prefix`. A figure without a title is an ornament.
    """
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata=NO_METADATA)
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = _own_ids(text, prefix)
    text = re.sub(r"#fe0[0-9a-f]{3}", lambda match: f"var(--{VARIABLES[match[0]]})", text)
    # The page has its own font; only the size is the figure's.
    text = re.sub(r"font: (?:\w+ )*?([\d.]+)px [^;\"]*", r"font-size: \1px", text)
    # A style inside a figure would apply to the whole page, which has one style for all figures.
    text = re.sub(r"<!--.*?-->\s*|<style.*?</style>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<defs>\s*</defs>\s*", "", text)
    box = re.search(r'viewBox="[^"]*"', text)
    assert box is not None
    role = f'role="img" aria-label="{html.escape(title)}"' if title else 'aria-hidden="true"'
    return f"<svg {box[0]} {role}>{text[text.index('>') + 1 :].strip()}"


def _own_ids(text: str, prefix: str) -> str:
    """Keep the ids that are used, each with the figure's prefix."""
    text = text.replace("xlink:href", "href")
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', text))
    text = re.sub(r' id="([^"]*)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", text)
    return re.sub(r'(href="|url\()#', rf"\1#{prefix}-", text)
