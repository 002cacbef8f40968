"""Fail a build whose pages would load something from the internet. Links for readers may lead there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

log = logging.getLogger(__name__)

LOADS = re.compile(
    r"""<(?:script|img|iframe|source|audio|video|embed)\b[^>]*\s(?:src|srcset)=["'](?:https?:)?//[^"']+"""
    r"""|<link\b[^>]*\brel=["'][^"']*(?:stylesheet|icon|preload|preconnect|prefetch)[^>]*\bhref=["'](?:https?:)?//[^"']+"""
    r"""|<link\b[^>]*\bhref=["'](?:https?:)?//[^>]*\brel=["'][^"']*(?:stylesheet|icon|preload|preconnect|prefetch)"""
    r"""|@import\s[^;]*//[^;]+|url\(\s*["']?(?:https?:)?//[^)]+""",
    re.IGNORECASE,
)


def from_the_internet(text: str) -> list[str]:
    """Return the parts of a page or style sheet that load something from another host."""
    return [found.group(0) for found in LOADS.finditer(text)]


def check(app: Sphinx, error: Exception | None) -> None:
    """Look through everything that was built."""
    if error is not None or app.builder.format != "html":
        return
    for path in sorted(Path(app.outdir).rglob("*")):
        if path.suffix in (".html", ".css"):
            for found in from_the_internet(path.read_text(encoding="utf-8")):
                log.warning("%s loads from the internet: %s", path.relative_to(app.outdir), found)


def setup(app: Sphinx) -> dict[str, Any]:
    """Let Sphinx know."""
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
