"""Imports the names of a package on first use.

Importing all of them at the start would take most of the start-up time, and a program needs only a few of them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path


def attach(
    package: str, file: str, before: Callable[[], None] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` of a package, as described in PEP 562.

    The names are listed once, in the stub next to the package's `__init__.py` (`file`). Type checkers read the stub
    directly. Each line has the form `from module import Name as Name`; a module of the package itself is
    `from package import module as module` and does not belong to `__all__`. `before` is called before an import, for
    packages that check their requirements.
    """
    # Parsing the stub costs less than importing what it lists. Reading the names from it, and not from a second list,
    # keeps type checkers and programs from seeing different names.
    modules, names = _read_stub(package, Path(file).with_suffix(".pyi"))

    def get(name: str) -> object:
        if name not in names and name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
        if before is not None:
            before()
        value = import_module(f"{package}.{name}") if name in modules else getattr(import_module(names[name]), name)
        setattr(sys.modules[package], name, value)  # later accesses find the attribute directly
        return value

    def list_names() -> list[str]:
        # Not `vars()` of the package: an import sets the name of a module in its package, so private modules would
        # appear in the completion list of a shell as soon as something imports them.
        special = {name for name in vars(sys.modules[package]) if name.startswith("__")}
        return sorted({*special, *names, *modules})

    return get, list_names, sorted(names)


def _read_stub(package: str, stub: Path) -> tuple[set[str], dict[str, str]]:
    """Return the modules that the stub lists, and the module of each other name."""
    modules: set[str] = set()
    names: dict[str, str] = {}
    for node in ast.parse(stub.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module == package:
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.update((alias.name, node.module) for alias in node.names)
    return modules, names
