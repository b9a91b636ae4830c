"""Packages that import a module of theirs when one of its names is first asked for: a start needs few of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def attributes(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package, as PEP 562 wants them.

    `homes` tells the names that each module brings, with blanks between; modules are written relative to the package
    (`.abort`), whose own modules are attributes too. Type checkers must not see this `__getattr__`, they would accept
    any name: for them the same imports stand under TYPE_CHECKING.
    """
    found = {name: module for module, names in homes.items() for name in names.split()}
    modules = {module[1:] for module in homes if module.rfind(".") == 0}

    def get(name: str) -> object:
        if name in found:
            value = getattr(import_module(found[name], package), name)
        elif name in modules:
            value = import_module(f".{name}", package)
        else:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        setattr(sys.modules[package], name, value)  # nobody asks here again
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *found, *modules})
