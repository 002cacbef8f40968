"""Docstrings and comments as pages show them.

Docstrings are plain text: names in backticks become code, and all else stays as it stands. A class without a
section Args gets one from the comments behind its fields.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
import tokenize
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # tests use the functions without Sphinx
    from sphinx.application import Sphinx

ALIAS = re.compile(r"TypeAliasForwardRef\('([^']+)'\)")
CODE = re.compile(r"(``[^`]+``|(?<![`:\w])`[^`\n]+`(?![`_]))")
MARKS = re.compile(r"[|*]|(?<=\bfile):(?=\w)")  # bars of norms, stars of patterns, file:PATH for a topology
FOR_TOOLS = ("noqa", "type:")


def as_written(line: str) -> str:
    """Return a line for Sphinx: single backticks doubled, and no marks but those."""
    if line.lstrip().startswith((">>>", "...")):
        return line
    pieces = CODE.split(line)
    pieces[0::2] = [MARKS.sub(r"\\\g<0>", piece) for piece in pieces[0::2]]
    pieces[1::2] = [f"``{piece.strip('`')}``" for piece in pieces[1::2]]
    return "".join(pieces)


def field_comments(source: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the comments behind the fields of a class, and those behind its class variables."""
    source = textwrap.dedent(source)
    comments = {
        token.start[0]: token.string.lstrip("# ").partition("  #")[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.string.lstrip("# ").startswith(FOR_TOOLS)
    }
    fields: dict[str, str] = {}
    variables: dict[str, str] = {}
    body = ast.parse(source).body[0]
    for node in body.body if isinstance(body, ast.ClassDef) else []:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.lineno in comments:
            shared = ast.unparse(node.annotation).startswith("ClassVar")
            (variables if shared else fields)[node.target.id] = comments[node.lineno]
    return fields, variables


def _sections(obj: type) -> list[str]:
    """Return what comments say of a class, as sections of a docstring."""
    fields, variables = field_comments(inspect.getsource(obj))
    shown = [("Args", fields), ("Attributes", variables if inspect.isabstract(obj) else {})]
    lines: list[str] = []
    for heading, comments in shown:
        if comments:
            lines += [f"{heading}:", *(f"    {name}: {text}" for name, text in comments.items()), ""]
    return lines


def prepare(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Change a docstring in place."""
    if what == "class" and inspect.isclass(obj) and "Args:" not in lines:
        lines += ["", *_sections(obj)]
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
    """Return a signature with the names of aliases, which autodoc hides where they are inside other types."""
    plain = [text and ALIAS.sub(r"\1", text) for text in (signature, returns)]
    return plain[0], plain[1]


def setup(app: Sphinx) -> dict[str, Any]:
    """Let Sphinx know."""
    app.connect("autodoc-process-docstring", prepare, priority=400)  # before napoleon's, which is 500
    app.connect("autodoc-process-signature", name_aliases)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
