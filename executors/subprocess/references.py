"""Naming a function in one process and finding it in another: "module:qualname", as imports know it.

Only functions of the worker's own program are named, never anything that came with a job.
"""

from __future__ import annotations

import importlib
import runpy
import sys
import types
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from glidemq_async.errors import ExecutorError

MAIN: Final = "__main__"
MAIN_TWIN: Final = "__mp_main__"
"""What the program's own script is called where it is read again, as multiprocessing calls it."""


_is_reading_main = False


class MainModule(NamedTuple):
    """How another process gets at the script that was started: by its module's name, or by its path."""

    name: str
    path: str

    @classmethod
    def of_this_process(cls) -> MainModule:
        """Return that of this process; empty for an interactive one."""
        main = sys.modules.get(MAIN)
        spec = getattr(main, "__spec__", None)
        if spec is not None and spec.name:
            return cls(spec.name, "")
        return cls("", getattr(main, "__file__", None) or "")


def reference_of(function: Callable[..., Any]) -> str:
    """Return the name under which another process finds the function.

    Raises TypeError, which says what to do, for what has none: a lambda, a function inside a function, an object.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or isinstance(function, types.MethodType):
        raise _unnamed(function, "it is no plain function")
    if "<" in name:
        raise _unnamed(function, "it is made inside of another function, or is a lambda")
    if module == MAIN and not any(MainModule.of_this_process()):
        raise _unnamed(function, "it was typed into an interactive session")
    found = _walk(sys.modules.get(module), name)
    while found is not function:
        found = getattr(found, "__wrapped__", None)
        if found is None:
            raise _unnamed(function, f"{module}.{name} is something else")
    return f"{module}:{name}"


def resolve(reference: str) -> Callable[..., Any]:
    """Return the function of that name, out of its decorators. Raises what its import raises, TypeError."""
    module_name, _, name = reference.partition(":")
    module = sys.modules.get(MAIN_TWIN) if module_name == MAIN else importlib.import_module(module_name)
    found = _walk(module, name)
    # A task is called by its users; what runs is the function in it.
    while not isinstance(found, types.FunctionType) and hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    if not callable(found):
        raise TypeError(f"{reference} is no function in this process")
    function: Callable[..., Any] = found
    return function


def read_main(main: MainModule) -> None:
    """Read the program's script again, under another name, so that its own start is left out."""
    if not any(main):
        return
    global _is_reading_main  # noqa: PLW0603
    twin = types.ModuleType(MAIN_TWIN)
    _is_reading_main = True
    if main.name:
        content = runpy.run_module(main.name, run_name=MAIN_TWIN, alter_sys=True)
    else:
        content = runpy.run_path(main.path, run_name=MAIN_TWIN)
    _is_reading_main = False
    twin.__dict__.update(content)
    sys.modules[MAIN_TWIN] = sys.modules[MAIN] = twin


def refuse_while_reading_main() -> None:
    """Raise ExecutorError in a child whose script starts its own work again: each child would start others."""
    if _is_reading_main:
        raise ExecutorError(
            "the script was read again in the process of a job and started a worker there: put what it starts below "
            'if __name__ == "__main__":'
        )


def _walk(found: object, name: str) -> Any:
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _unnamed(function: object, why: str) -> TypeError:
    return TypeError(
        f"{function!r} cannot run in another process: {why}. Define it with def at the top level of a module that "
        "can be imported, under the name it has there"
    )
