"""README.md and CONTRIBUTING.md are pages of the site too, so that there is one text of each and not two."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # tests use the functions without Sphinx
    from sphinx.application import Sphinx

PAGES = {"index": "README.md", "contributing": "CONTRIBUTING.md"}
NAMES = {file: f"/{page}.md" for page, file in PAGES.items()}
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
UP = re.compile(rf"\]\((?:\.\./)+({'|'.join(map(re.escape, NAMES))})")


def links_from_docs(text: str) -> str:
    """Return the text of a file beside docs/ with its links as a page in docs/ has them."""

    def moved(link: re.Match[str]) -> str:
        target = link[1]
        inside = target.removeprefix("docs/")
        return f"]({NAMES.get(target, inside if inside != target else f'../{target}')}"

    return LINK.sub(moved, text)


def links_to_pages(text: str) -> str:
    """Return the text of a page in docs/ with links to the files that are pages leading to these."""
    return UP.sub(lambda link: f"]({NAMES[link[1]]}", text)


def put_file(app: Sphinx, name: str, source: list[str]) -> None:
    """Put the file before what the page has itself, and let links lead to the page."""
    if name in PAGES:
        text = (Path(app.srcdir).parent / PAGES[name]).read_text(encoding="utf-8")
        source[0] = f"{links_from_docs(text)}\n{source[0]}"
    else:
        source[0] = links_to_pages(source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Let Sphinx know."""
    app.connect("source-read", put_file)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
