"""Packages whose names are loaded when they are first used (PEP 562).

So that graphs, reports and the command's help need not wait for torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def loading(package: str, found_in: Mapping[str, str]) -> Callable[[str], object]:
    """Return a package's `__getattr__`, which imports a name's module when the name is first used.

    `found_in` maps a name to "module" for `package.module.name`, and to "" for the module `package.name`.
    """

    def load(name: str) -> object:
        if name not in found_in:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{found_in[name] or name}")
        found: object = getattr(module, name) if found_in[name] else module
        setattr(sys.modules[package], name, found)
        return found

    return load
