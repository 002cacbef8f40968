"""Fail a build whose pages would load something from the internet. Links for readers may lead there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # tests use the functions without Sphinx
    from sphinx.application import Sphinx

HOST = r"(?:https?:|wss?:)?//[^\"'\s>)]+"
BY_REL = r"(?:stylesheet|icon|preload|preconnect|prefetch|manifest|modulepreload)"
LOADS = re.compile(
    rf"<(?:script|img|image|iframe|source|audio|video|track|embed|object|use|input)\b[^>]*?\s"
    rf"(?:src|srcset|data|poster|(?:xlink:)?href)\s*=\s*[\"']?(?:[^\"'>]*[\s,])?{HOST}"
    rf"|<link\b[^>]*?\brel\s*=\s*[\"']?[^\"'>]*{BY_REL}[^>]*?\bhref\s*=\s*[\"']?{HOST}"
    rf"|<link\b[^>]*?\bhref\s*=\s*[\"']?{HOST}[^>]*?\brel\s*=\s*[\"']?[^\"'>]*{BY_REL}"
    rf"|@import\s+[\"']?{HOST}|url\(\s*[\"']?{HOST}|\b(?:importScripts|import|fetch)\(\s*[\"'`]{HOST}",
    re.IGNORECASE,
)
KINDS = (".html", ".css", ".js", ".svg")


def from_the_internet(text: str) -> list[str]:
    """Return the parts of a page, style sheet, script or drawing that load something from another host."""
    return [found.group(0) for found in LOADS.finditer(text)]


def check(app: Sphinx, error: Exception | None) -> None:
    """Look through everything that was built."""
    from sphinx.util import logging  # noqa: PLC0415 - tests use the rest without Sphinx

    if error is not None or app.builder.format != "html":
        return
    for path in sorted(Path(app.outdir).rglob("*")):
        if path.suffix in KINDS:
            for found in from_the_internet(path.read_text(encoding="utf-8")):
                logging.getLogger(__name__).warning(
                    "%s loads from the internet: %s", path.relative_to(app.outdir), found
                )


def setup(app: Sphinx) -> dict[str, Any]:
    """Let Sphinx know."""
    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
