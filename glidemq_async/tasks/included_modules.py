"""The modules of an app that declare tasks, imported before its first worker or command needs them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pkgutil import iter_modules
from typing import cast


class IncludedModules:
    """The modules that `GlideMQ(include=...)` names."""

    def __init__(self, names: object) -> None:
        self._pending = _checked(names)

    def load(self) -> None:
        """Import the modules that are not imported yet. Raises ImportError, which names the module and the cause."""
        # Taken before the imports: one of the modules may create a worker of the app itself.
        pending, self._pending = self._pending, ()
        for place, name in enumerate(pending):
            try:
                import_module(name)
            except Exception as error:
                self._pending = pending[place:]
                raise ImportError(f"include= names module {name!r}, {_cause(name, error)}", name=name) from error


def _checked(names: object) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(f'include must be a list of module names, as in include=["app.tasks"], got {names!r}')
    for name in cast("Sequence[object]", names):
        if not isinstance(name, str):
            raise TypeError(f"include must be a list of module names, but it contains {name!r}")
        if not all(part.isidentifier() for part in name.split(".")):
            raise ValueError(f'include must be a list of module names, as in include=["app.tasks"], got {name!r}')
    return tuple(cast("Sequence[str]", names))


def _cause(name: str, error: Exception) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if missing is None:
        return f"whose import raised {type(error).__name__}: {error}"
    if name == missing or name.startswith(f"{missing}."):
        return f"but there is no module {missing!r}{_suggestion(missing)}"
    return f"which imports {missing!r}, but there is no such module"


def _suggestion(missing: str) -> str:
    parent, _, last = missing.rpartition(".")
    # Only the paths of an imported package: nothing is imported for the text of an error.
    paths: Iterable[str] | None = getattr(sys.modules.get(parent), "__path__", ()) if parent else None
    near = get_close_matches(last, [module.name for module in iter_modules(paths)], 1)
    if near:
        return f": did you mean {f'{parent}.{near[0]}'.lstrip('.')!r}?"
    return "; check its name and the import path"
