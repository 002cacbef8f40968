"""How `make docs` builds the site: strictly, and without the internet."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "Gossamer"
author = "Gossamer's authors"
copyright = "Gossamer's authors, MIT licence"  # noqa: A001 - Sphinx's name
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "docstrings",
    "root_files",
    "mathml",
    "offline",
    "registered",
]
exclude_patterns = ["_ext", "results", "figures"]

myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
myst_heading_anchors = 3
smartquotes_action = "D"  # dashes only: quotes around what is to be typed stay as they are
suppress_warnings = ["misc.highlighting_failure"]  # "hex" blocks name a test's case, not a language

nitpicky = True  # a name in the API that leads nowhere is an error; other projects' pages are not at hand
nitpick_ignore_regex = [
    (r"py:.*", r"(collections|contextlib|networkx|numpy|os|pathlib|subprocess|threading|torch)\..*"),
    (r"py:class", r"nx\.Graph|Parameter|Optimizer|Format"),  # as they are imported, and an alias
    (r"py:class", r"gossamer\.\w+\.specs\.(Function|Kind)"),  # type variables: what goes in comes out
]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_type_aliases = {  # shown by these names, with an entry of their own, not as what they stand for
    "Batch": "~gossamer.tasks.Batch",
    "Gamma": "~gossamer.algorithms.Gamma",
    "Inbox": "~gossamer.rounds.Inbox",
    "Order": "~gossamer.algorithms.Order",
    "RawPolicy": "~gossamer.compress.RawPolicy",
    "Round": "~gossamer.rounds.Round",
    "Rows": "int | tuple[int, int] | None",
    "StepsAndPhases": "~gossamer.rounds.StepsAndPhases",
    "Weights": "~gossamer.topology.Weights",
}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_preprocess_types = False
python_display_short_literal_types = True
python_maximum_signature_line_length = 88
add_module_names = False

html_theme = "furo"
html_title = "Gossamer"
html_static_path = ["_static"]
html_css_files = ["gossamer.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
