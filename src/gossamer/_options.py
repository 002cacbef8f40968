"""What may follow a name after colons, as in "powergossip:2" or "torus:2x4".

How it is read follows from the annotations of the class or function behind the name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

READERS: dict[object, Callable[[str], object]] = {int: int, float: float, str: str}


@dataclass(frozen=True)
class Option:
    """How one option is shown and read; `rest` takes all that is left of a text, with its colons."""

    label: str
    read: Callable[[str], object]
    rest: bool = False


def options_of(thing: Callable[..., object], names: Iterable[str]) -> dict[str, Option]:
    """Return options for these parameters of a function or fields of a dataclass, by their annotations.

    int, float and str, also with None, are read as such. Others must be Annotated[..., Option(...)].
    """
    wanted = list(names)
    hints = get_type_hints(thing, include_extras=True) if wanted else {}
    return {name: _option(thing, name, hints.get(name)) for name in wanted}


def _option(thing: Callable[..., object], name: str, hint: Any) -> Option:  # noqa: ANN401 - any annotation
    if get_origin(hint) is Annotated:
        for note in hint.__metadata__:
            if isinstance(note, Option):
                return note
    either = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    kinds = [kind for kind in either if kind is not NoneType]
    if len(kinds) != 1 or kinds[0] not in READERS:
        raise ValueError(
            f"the parameter {name} of {thing.__name__} cannot be read from text: let it be an int, a float "
            f"or a str, or Annotated[..., Option(label, reader)]"
        )
    return Option(name.upper(), READERS[kinds[0]])


def usage(name: str, options: Mapping[str, Option]) -> str:
    """Return what can be written, as torus[:ROWSxCOLUMNS]."""
    return name + "".join(f"[:{option.label}]" for option in options.values())


def read_options(
    spec: str, name: str, options: Mapping[str, Option], texts: Sequence[str]
) -> dict[str, object]:
    """Return the values of the options that follow a name, or say what can be written."""
    if texts and any(option.rest for option in options.values()):
        texts = [*texts[: len(options) - 1], ":".join(texts[len(options) - 1 :])]
    unreadable = ValueError(f"cannot read {spec!r}: write {usage(name, options)}")
    if len(texts) > len(options):
        raise unreadable
    try:
        return {key: o.read(text) for (key, o), text in zip(options.items(), texts, strict=False)}
    except ValueError:
        raise unreadable from None
