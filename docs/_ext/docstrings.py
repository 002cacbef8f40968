"""Docstrings are plain text: show their names in backticks as code, and |x| as it stands; and signatures."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

ALIAS = re.compile(r"TypeAliasForwardRef\('([^']+)'\)")
CODE = re.compile(r"(``[^`]+``|(?<![`:\w])`[^`\n]+`(?![`_]))")


def as_written(line: str) -> str:
    """Return a line for Sphinx: single backticks doubled, bars of norms escaped outside of code."""
    if line.lstrip().startswith((">>>", "...")):
        return line
    pieces = CODE.split(line)
    pieces[0::2] = [piece.replace("|", r"\|") for piece in pieces[0::2]]
    pieces[1::2] = [f"``{piece.strip('`')}``" for piece in pieces[1::2]]
    return "".join(pieces)


def prepare(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Change a docstring in place."""
    lines[:] = [as_written(line) for line in lines]
    if what in ("attribute", "property"):
        lines[:0] = ["..", ""]  # a comment, or what is before the first colon would be taken for a type


def name_aliases(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Return a signature with the names of aliases where autodoc, inside other types, shows its own object."""
    plain = [text and ALIAS.sub(r"\1", text) for text in (signature, returns)]
    return plain[0], plain[1]


def setup(app: Sphinx) -> dict[str, Any]:
    """Let Sphinx know."""
    app.connect("autodoc-process-docstring", prepare, priority=400)  # before napoleon's, which is 500
    app.connect("autodoc-process-signature", name_aliases)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
