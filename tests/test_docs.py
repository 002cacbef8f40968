"""The documentation leaves nothing out, and says of the code what the code says: text beside text.

`make docs` builds the site and finds links and names that lead nowhere; here it is not needed.
"""

from __future__ import annotations

import collections.abc
import importlib
import importlib.util
import inspect
import json
import re
import typing
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.catalogue import TABLES, filled
from benchmarks.pages import number
from benchmarks.pages import table as written
from benchmarks.slow_networks.plan import SLOW

import gossamer
from gossamer import algorithms, compress, errors, rounds

ROOT = Path(__file__).resolve().parents[1]
DOCS, SOURCE = ROOT / "docs", ROOT / "src" / "gossamer"
OTHERWISE = {"cli", "integrations"}  # commands, and what needs other people's packages: docs/integrations.md
ROOMS = [
    f"gossamer.{path.parent.name}"
    for path in sorted(SOURCE.glob("*/__init__.py"))
    if not path.parent.name.startswith("_") and path.parent.name not in OTHERWISE
]
BEST = "Gossamer's best"
ENTRY = re.compile(r"^\.\. (?:auto|py:)\w+:: ([\w.]+)", re.MULTILINE)


def pages(folder):
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((DOCS / folder).glob("*.md"))}


TOP, API, EQUATIONS = pages("."), pages("api"), pages("algorithms")


def entries(*pages):
    """Return the names that have entries of their own in the reference, or get one when it is built."""
    marked = {room for page in pages for room in extension("registered").MARK.findall(page)}
    made = {f"{room}.{name}" for room in marked for name in importlib.import_module(room).NAMES.exports()}
    return made | {name for page in pages for name in ENTRY.findall(page)}


def public(room):
    module = importlib.import_module(room)
    return {f"{room}.{name}": getattr(module, name) for name in module.__all__}


def missing(names, pages):
    """Return the public names without an entry. A package has its row in the table, or an entry."""
    known = entries(*pages)
    tabled = set(re.findall(r"`(gossamer\.\w+)`", "\n".join(pages)))
    return sorted(
        name
        for name, value in names.items()
        if name not in known and not (inspect.ismodule(value) and name in tabled)
    )


def extension(name):
    """Return one of the site's extensions, which is made so that it can be read without Sphinx."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / "_ext" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def found(name):
    """Return what a dotted name stands for."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            value = getattr(value, part)
        return value
    raise LookupError(name)


def table(text, heading):
    """Return the rows of the table whose first heading is this, as lists of cells."""
    lines = text[text.index(f"\n| {heading} |") + 1 :].partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("room", ["gossamer", *ROOMS])
def test_every_public_name_has_an_entry(room):
    names = public(room)
    names.pop("gossamer.__version__", None)
    assert not missing(names, [*API.values(), *EQUATIONS.values()]), "write an entry in docs/api"


def test_every_error_has_an_entry():
    own = {name: value for name, value in vars(errors).items() if inspect.isclass(value)}
    assert not missing({f"gossamer.{name}": value for name, value in own.items()}, API.values())


def test_every_package_is_in_the_table():
    assert [
        room for room in ROOMS if f"| `{room}`" not in API["index"] and f", `{room}`" not in API["index"]
    ] == []


def test_a_name_without_an_entry_is_noticed():
    names = {"gossamer.average": gossamer.average, "gossamer.new": missing, "gossamer.room": gossamer}
    assert missing(names, API.values()) == ["gossamer.new", "gossamer.room"]
    longer = API["doors"].replace(":: gossamer.average", ":: gossamer.averages")
    assert missing({"gossamer.average": gossamer.average}, [longer]) == ["gossamer.average"]


def test_every_page_of_the_reference_is_in_its_list():
    listed = re.search(r"```\{toctree\}.*?\n\n(.*?)```", API["index"], re.DOTALL)
    assert listed is not None
    assert sorted(listed[1].split()) == sorted(set(API) - {"index"})


WRITTEN_BY_HAND = re.findall(
    r"^\.\. py:(data|type):: ([\w.]+)(?:\n   :canonical: (.*))?", "\n".join(API.values()), re.MULTILINE
)


@pytest.mark.parametrize(("kind", "name", "shown"), WRITTEN_BY_HAND, ids=lambda value: str(value)[:40])
def test_what_is_written_by_hand_is_as_in_the_code(kind, name, shown):
    """Autodoc finds all else; an alias is shown as what it stands for."""
    value = found(name)
    if kind == "type":
        known = {**vars(typing), **vars(collections.abc), **vars(rounds)}
        known |= {"collections": collections, "numpy": np, "torch": torch}
        assert eval(shown, known) == value, f"{name} is {value}"  # noqa: S307 - our own page


def test_the_pages_of_algorithms_have_their_papers_and_equations():
    """All of those that came with the library have one; a new one may begin with its docstring."""
    assert len(EQUATIONS) >= 8
    assert set(EQUATIONS) <= set(algorithms.NAMES.ours)
    for name, page in EQUATIONS.items():
        kind = algorithms.NAMES[name]
        assert f"gossamer.algorithms.{kind.__name__}" in entries(page)
        papers = re.findall(r"arXiv:(\d+\.\d+)", kind.__doc__ or "")
        assert all(f"https://arxiv.org/abs/{paper}" in page for paper in papers), f"{name}: {papers}"
        assert "$$" in page, f"{name} has no equations"


@pytest.mark.parametrize("page", TABLES)
def test_the_tables_say_what_the_classes_say(page):
    assert TOP[page] == filled(page), "run make tables"


def test_what_is_registered_gets_an_entry_unless_it_has_one():
    known = {f"gossamer.compress.{name}" for name in compress.NAMES.exports()}
    made = extension("registered").entries
    assert made("gossamer.compress", known - {"gossamer.compress.Sign"}) == [
        ".. autoclass:: gossamer.compress.Sign"
    ]
    assert made("gossamer.topology", set())[0] == ".. autofunction:: gossamer.topology.ring"
    assert made("gossamer.algorithms", extension("registered").written(DOCS)) == []


def test_the_fastest_methods_are_those_that_were_measured():
    tasks = json.loads((DOCS / "results" / "slow_networks.json").read_text())["results"]["tasks"]
    found = [[tasks[task]["networks"][network]["ratios"] for task in tasks] for network in SLOW]
    best = [[f"{number(r['sooner than']['DDP']['times'], 2)}: {r[BEST]}" for r in row] for row in found]
    rows = [[network, *row] for network, row in zip(SLOW, best, strict=True)]
    expected = written(["", *tasks], rows)
    shown = re.search(r"<!-- which method -->\n\n(.*?)\n\n<!-- end -->", TOP["which_method"], re.DOTALL)
    assert shown is not None
    assert shown[1] == expected, f"put this into docs/which_method.md:\n{expected}"


LOADS = {
    "a script": '<script async src="https://cdn.example/math.js"></script>',
    "a script by the page's own scheme": "<script src='//cdn.example/math.js'></script>",
    "a script without quotes": "<script src=https://cdn.example/math.js></script>",
    "an image": '<img alt="build" src="http://badges.example/build.svg">',
    "the second of two images": '<img srcset="small.png 1x, https://cdn.example/large.png 2x">',
    "a style sheet": '<link rel="stylesheet" type="text/css" href="https://fonts.example/css?family=Sans">',
    "a style sheet, the other way round": '<link href="https://fonts.example/css" rel="stylesheet">',
    "an icon": '<link rel="shortcut icon" href="https://cdn.example/icon.png">',
    "a frame": '<iframe width="1" src="https://video.example/1"></iframe>',
    "a font": "@font-face { src: url(https://fonts.example/sans.woff2) }",
    "an import": '@import "https://fonts.example/css";',
    "a drawing": '<image width="1" xlink:href="https://cdn.example/a.png"/>',
    "a request": "fetch('https://api.example/search')",
}
DOES_NOT_LOAD = {
    "a link": '<a class="reference external" href="https://arxiv.org/abs/1902.00340">the paper</a>',
    "a script of the site": '<script src="_static/scripts/furo.js?v=1"></script>',
    "an image of the site": '<img src="../_images/heat_map.png">',
    "a style sheet of the site": '<link rel="stylesheet" href="_static/gossamer.css">',
    "another name of the page": '<link rel="canonical" href="https://docs.example/index.html">',
    "the next page": '<link rel="next" title="https://x" href="start.html">',
    "an address in the text": "<p>It is at https://example.org/a.js, or //example.org</p>",
    "a formula": '<math xmlns="http://www.w3.org/1998/Math/MathML"><mi>x</mi></math>',
    "code": "<pre>&lt;script src=&quot;https://cdn.example/a.js&quot;&gt;</pre>",
    "a drawing in the sheet": "background: url(data:image/svg+xml;charset=utf-8,<svg xmlns='http://www.w3.org/2000/svg'/>)",
}


@pytest.mark.parametrize("text", LOADS.values(), ids=LOADS)
def test_what_a_page_loads_from_a_host_is_found(text):
    assert len(extension("offline").from_the_internet(f"<html>\n{text}\n</html>")) == 1


@pytest.mark.parametrize("text", DOES_NOT_LOAD.values(), ids=DOES_NOT_LOAD)
def test_what_loads_nothing_from_a_host_is_left_alone(text):
    assert extension("offline").from_the_internet(f"<html>\n{text}\n</html>") == []


def test_links_of_the_files_beside_the_pages_are_turned_round():
    files = extension("root_files")
    text = (
        "[a](docs/lab.md#scenarios) [b](examples/digits.py) [c](CONTRIBUTING.md) [d](https://x.org) [e](#end)"
    )
    turned = (
        "[a](lab.md#scenarios) [b](../examples/digits.py) [c](/contributing.md) [d](https://x.org) [e](#end)"
    )
    assert files.links_from_docs(text) == turned
    text = "[a](../README.md#two-commands) [b](../../CONTRIBUTING.md) [c](../README.txt) [d](lab.md)"
    assert files.links_to_pages(text) == (
        "[a](/index.md#two-commands) [b](/contributing.md) [c](../README.txt) [d](lab.md)"
    )


def test_docstrings_are_shown_as_they_are_written():
    shown = extension("docstrings").as_written
    assert shown("`x` is |v|, or `a|b`; *=sign") == r"``x`` is \|v\|, or ``a|b``; \*=sign"
    assert shown("    >>> x = `a` | b") == "    >>> x = `a` | b"
    assert shown('"file:PATH" reads a file: so') == r'"file\:PATH" reads a file: so'


def test_comments_behind_fields_are_found():
    source = '''
    @dataclass
    class Thing:
        """A thing."""

        code: ClassVar[int] = 1  # on the wire
        size: int  # in bytes
        name: str = "#1"  # noqa: A003
        where: str = ""

        def method(self) -> None:
            local: int = 2  # not a field
    '''
    assert extension("docstrings").field_comments(source) == ({"size": "in bytes"}, {"code": "on the wire"})
