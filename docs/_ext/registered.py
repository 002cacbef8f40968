"""Entries for what is registered in a package and has none on any page: `.. registered:: gossamer.compress`.

So a new algorithm, compressor or topology is in the reference without a line about it in docs.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # tests use the functions without Sphinx
    from sphinx.application import Sphinx

MARK = re.compile(r"^\.\. registered:: ([\w.]+)$", re.MULTILINE)
ENTRY = re.compile(r"^\.\. (?:auto|py:)\w+:: ([\w.]+)", re.MULTILINE)


def written(docs: Path) -> set[str]:
    """Return the names that have entries on some page."""
    return {name for path in docs.rglob("*.md") for name in ENTRY.findall(path.read_text(encoding="utf-8"))}


def entries(room: str, known: set[str]) -> list[str]:
    """Return directives for what a package registers and nobody has written an entry for."""
    module = import_module(room)
    public = [name for name in module.NAMES.exports() if name in module.__all__]
    names = [name for name in public if f"{room}.{name}" not in known]
    kinds = ["autoclass" if inspect.isclass(getattr(module, name)) else "autofunction" for name in names]
    return [f".. {kind}:: {room}.{name}" for kind, name in zip(kinds, names, strict=True)]


def put_entries(app: Sphinx, page: str, source: list[str]) -> None:
    """Put entries in the place of the mark."""
    found = MARK.search(source[0])
    if found:
        lines = entries(found[1], written(Path(app.srcdir)))
        source[0] = MARK.sub("\n".join(lines) or ".. none", source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Let Sphinx know."""
    app.connect("source-read", put_entries)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
