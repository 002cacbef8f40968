"""Formulas as MathML, which browsers draw by themselves: no script and no font has to be fetched."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.writers.html5 import HTML5Translator

# docutils puts the index of a letter with a hat, x^_i, under the letter and not beside it
UNDER_A_HAT = re.compile(
    r"<munderover>\s*(<mi>[^<]*</mi>)\s*((?:(?!munderover).)*?)"
    r'\s*(<mo stretchy="false">.</mo>)\s*</munderover>',
    re.DOTALL,
)
BESIDE_IT = r'<msub><mover accent="true">\1\3</mover>\2</msub>'


def _convert(node: nodes.Node, *, as_block: bool) -> str:
    try:
        drawn = UNDER_A_HAT.sub(BESIDE_IT, tex2mathml(node.astext(), as_block=as_block))
    except Exception as error:
        raise ExtensionError(f"the formula {node.astext()!r} cannot be drawn: {error}") from error
    if re.search(r"<munderover>\s*<mi>", drawn):
        raise ExtensionError(f"the formula {node.astext()!r} would have an index under a letter")
    return drawn


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Draw a formula in a line."""
    self.body.append(_convert(node, as_block=False))
    raise nodes.SkipNode


def visit_display(self: HTML5Translator, node: nodes.math_block) -> None:
    """Draw a formula on lines of its own, which scrolls where the screen is narrow."""
    self.body.append(f'<div class="math">{_convert(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Let Sphinx know."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
