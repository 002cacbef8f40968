"""Algorithms, compressors and topologies by the names people type: ours, and other people's.

Ours are lines of text, "package.module:attribute", and are imported when they are first asked for, so that
the command's help can name them without torch. Other people's are registered in Python, or are entry points
of an installed package; those are looked for only when a name is not known otherwise, or all are listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from gossamer._suggest import unknown_name
from gossamer.errors import PackageError

T = TypeVar("T")
OURS = "gossamer"


@dataclass
class _Entry(Generic[T]):
    """Who provides an object, how to import it, and the object itself once it is imported."""

    owner: str
    load: Callable[[], object]
    thing: T | None = None


class Registry(Mapping[str, T]):
    """Things by name. Asking for one imports it; listing names imports nothing.

    `what` is the word for one of them in error messages, `group` the name of the entry points' group.
    `admit`, given as "package.module:function", checks what was imported and returns it with `examples`, a
    mapping from what people may type to a line about it.
    """

    def __init__(
        self, what: str, group: str, ours: Mapping[str, str], admit: str, spell: Callable[[str], str]
    ) -> None:
        self.what, self.group, self.ours = what, group, tuple(ours)
        self._places, self._admit, self._spell = dict(ours), admit, spell
        self._known = {name: _Entry[T](OURS, _importing(place)) for name, place in ours.items()}
        self._installed: dict[str, _Entry[T]] | None = None
        self._clashes: list[str] = []

    def __getitem__(self, name: str) -> T:
        entry = self._known.get(name) or self._packages().get(name)
        if entry is None:
            raise KeyError(name)
        if entry.thing is None:
            entry.thing = self._loaded(name, entry)
        return entry.thing

    def __contains__(self, name: object) -> bool:
        return name in self._known or name in self._packages()

    def __iter__(self) -> Iterator[str]:
        return iter([*self._known, *self._packages()])

    def __len__(self) -> int:
        return len(self._known) + len(self._packages())

    def find(self, written: str) -> tuple[str, T]:
        """Return a name as it is spelt here and its object, or raise an error that suggests a name."""
        name = self._spell(written)
        if name not in self:
            raise unknown_name(self.what, written, self)
        return name, self[name]

    def catalogue(self) -> tuple[dict[str, T], list[str]]:
        """Return all that can be imported, and for the rest an error text each."""
        found: dict[str, T] = {}
        problems: list[str] = []
        for name in self:
            try:
                found[name] = self[name]
            except PackageError as error:
                problems.append(str(error))
        return found, [*problems, *self._clashes]

    def add(self, thing: object) -> T:
        """Register an object under its names; a name that is taken is an error that says by whom."""
        owner = f"{getattr(thing, '__module__', '?')}.{getattr(thing, '__qualname__', thing)}"
        admitted = self._admitted(thing)
        for name in names_of(admitted):
            taken = self._known.get(name)
            if taken is not None and taken.owner != owner:  # a notebook's cell may be run again
                raise ValueError(f"the {self.what} {name!r} of {owner}: the name is taken by {taken.owner}")
            if name != self._spell(name):
                raise ValueError(f"the {self.what} {name!r} of {owner}: write the name {self._spell(name)!r}")
        entry = _Entry(owner, lambda: thing, admitted)
        self._known |= dict.fromkeys(names_of(admitted), entry)
        if self._installed is not None:
            self._installed = None  # looked for again, in case a package has the same name
        return admitted

    def exports(self) -> dict[str, str]:
        """Return in which module of its package each of our things is, by the name it has in Python."""
        places = (place.partition(":") for place in self._places.values())
        return {attribute: module.rpartition(".")[2] for module, _, attribute in places}

    def _packages(self) -> dict[str, _Entry[T]]:
        """Return the entry points of installed packages whose names are not known otherwise."""
        if self._installed is None:
            self._installed, self._clashes = {}, []
            for point in entry_points(group=self.group):
                self._take(self._installed, point)
        return self._installed

    def _take(self, installed: dict[str, _Entry[T]], point: EntryPoint) -> None:
        name, owner = self._spell(point.name), _package(point)
        if name in self._known:
            taken = self._known[name].owner
            self._clashes.append(f"the {self.what} {name!r} of {owner}: the name is taken by {taken}")
        elif name in installed:
            both = f"{installed[name].owner} and {owner} both have the {self.what} {name!r}: uninstall one"
            installed[name] = _Entry(f"{installed[name].owner} and {owner}", _failing(both))
        else:
            installed[name] = _Entry(owner, point.load)

    def _loaded(self, name: str, entry: _Entry[T]) -> T:
        """Import an object; an error in somebody else's package is raised with the package's name."""
        try:
            thing = self._admitted(entry.load())
            if name not in names_of(thing):
                raise ValueError(f"it is to be typed as {' or '.join(names_of(thing))}: name it so")
        except PackageError:
            raise
        except Exception as error:
            if entry.owner == OURS:
                raise
            raise PackageError(
                f"the {self.what} {name!r} of {entry.owner} cannot be used: {type(error).__name__}: {error}"
            ) from error
        return thing

    def _admitted(self, thing: object) -> T:
        admit: Callable[[object], T] = _importing(self._admit)()
        return admit(thing)


def names_of(thing: object) -> tuple[str, ...]:
    """Return the names that a thing's examples begin with."""
    examples: Mapping[str, str] = getattr(thing, "examples", {})
    return tuple(dict.fromkeys(example.partition(":")[0] for example in examples))


def admitted_class(thing: object, base: type[T]) -> type[T]:
    """Return a class that can be named: one of these, with examples of what people may type."""
    if not (isinstance(thing, type) and issubclass(thing, base)):
        raise ValueError(f"{thing!r} is no class of {base.__name__}")
    if not names_of(thing):
        raise ValueError(f"{thing.__name__} has no examples: {{'what people type': 'what it is'}}")
    return thing


def _importing(place: str) -> Callable[[], Any]:
    module, _, attribute = place.partition(":")
    return lambda: getattr(import_module(module), attribute)


def _failing(text: str) -> Callable[[], object]:
    def fail() -> object:
        raise PackageError(text)

    return fail


def _package(point: EntryPoint) -> str:
    return f"package {point.dist.name} {point.dist.version}" if point.dist else f"entry point {point.value}"
