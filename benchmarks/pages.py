"""Pages whose text is written by hand and whose tables come from results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def fill(text: str, name: str, body: str) -> str:
    """Put a body between the markers <!-- NAME --> and <!-- end --> of a page."""
    begin, end = f"<!-- {name} -->", "<!-- end -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"the page has no place for {name}: write {begin} and {end} into it")
    return f"{before}{begin}\n\n{body}\n\n{end}{after}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown: a name, then numbers."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(x: float | None, digits: int = 3) -> str:
    """Return a number with so many significant digits, or a dash."""
    if x is None:
        return "–"
    if abs(x) >= 10**digits or x == int(x):
        return f"{x:.0f}"
    return f"{x:#.{digits}g}".rstrip(".")


def raw_lines(record: Mapping[str, Any]) -> str:
    """Return a sentence that says where the measurements behind a record are."""
    raw = record["raw lines"]
    history = f"in the repository's history at commit\n`{raw['commit']}`" if "commit" in raw else "not kept"
    return f"Every measurement behind it is a line of `{raw['path']}`, {history},\nsha256 `{raw['sha256']}`."
