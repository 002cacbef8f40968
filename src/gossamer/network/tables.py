"""Tables of TOML or JSON, read with errors that say where the mistake is."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gossamer._suggest import located, unknown_name


def read_file(path: Path, what: str) -> dict[str, Any]:
    """Return the tables of a .toml or .json file that describes `what`."""
    if path.suffix not in (".toml", ".json"):
        raise ValueError(f"a {what} file ends in .toml or .json")
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no {what} file {path}: is the path right?") from None
    kind, parse = ("JSON", json.loads) if path.suffix == ".json" else ("TOML", tomllib.loads)
    with located(f"this is not {kind}"):
        tables = parse(text)
    return read_table("the file", tables)


def read_links(
    links: object, n: int, readers: Mapping[str, Callable[[Any], float]]
) -> Iterator[tuple[tuple[int, int], dict[str, float]]]:
    """Yield every described pair (from, to) with its values, read by their readers."""
    if not isinstance(links, list):
        raise ValueError("links: write each as its own table under [[links]]")
    described = set()
    for k, entry in enumerate(links):
        with located(f"links, entry {k + 1}"):
            link = read_table("a link", entry, ("between", *readers, "one_way"))
            i, j = read_pair(link.get("between"), n)
            pairs = [(i, j)] if flag(link, "one_way", default=False) else [(i, j), (j, i)]
            values = {name: read(link[name]) for name, read in readers.items() if name in link}
        for pair in pairs:
            if pair in described:
                raise ValueError(f"links: {pair[0]} to {pair[1]} is described twice: write it once")
            described.add(pair)
            yield pair, values


def read_pair(between: object, n: int) -> tuple[int, int]:
    """Return the two workers of `between = [0, 4]`."""
    if not isinstance(between, list) or len(between) != 2:
        raise ValueError("say which two workers it joins: between = [0, 4]")
    return check_pair((between[0], between[1]), n)


def read_table(what: str, value: object, known: Iterable[str] | None = None) -> dict[str, Any]:
    """Return a value that must be a table, with none but the known names in it."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be a table of names and values, not {value!r}")
    for name in value:
        if known is not None and name not in known:
            raise unknown_name("setting", name, known)
    return value


def flag(table: dict[str, Any], name: str, *, default: bool) -> bool:
    """Return a table's true or false."""
    value = table.get(name, default)
    if not isinstance(value, bool):
        raise ValueError(f"{name} = {value!r}: it is true or false")
    return value


def check_rank(value: object, n: int) -> int:
    """Return the number of a worker that exists."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < n:
        raise ValueError(f"there is no worker {value!r}: with {n} workers they are 0 to {n - 1}")
    return value


def check_pair(pair: tuple[object, object], n: int) -> tuple[int, int]:
    """Return two different workers that exist."""
    i, j = (check_rank(rank, n) for rank in pair)
    if i == j:
        raise ValueError(f"a link joins two workers, not {i} with itself")
    return i, j
