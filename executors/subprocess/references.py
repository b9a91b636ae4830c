"""Names a function in one process and finds it in another, as "module:qualname".

Only functions of the worker's program are named, never names that came with a job.
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
"""The name of the program's script in a child, the same as in multiprocessing."""


_is_reading_main = False


class MainModule(NamedTuple):
    """The way in which another process imports the started script: by the name of its module, or by its path."""

    name: str
    path: str

    @classmethod
    def of_this_process(cls) -> MainModule:
        """Return the main module of this process; empty for an interactive session."""
        main = sys.modules.get(MAIN)
        spec = getattr(main, "__spec__", None)
        if spec is not None and spec.name:
            return cls(spec.name, "")
        return cls("", getattr(main, "__file__", None) or "")


def reference_of(function: Callable[..., Any]) -> str:
    """Return the name under which another process finds the function.

    Raises TypeError with a remedy for a lambda, a function inside a function, or an object, which have no such name.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or isinstance(function, types.MethodType):
        raise _unnamed(function, "it is not a plain function")
    if "<" in name:
        raise _unnamed(function, "it is defined inside another function, or is a lambda")
    if module == MAIN and not any(MainModule.of_this_process()):
        raise _unnamed(function, "it was typed into an interactive session")
    found = _walk(sys.modules.get(module), name)
    while found is not function:
        found = getattr(found, "__wrapped__", None)
        if found is None:
            raise _unnamed(function, f"{module}.{name} is something else")
    return f"{module}:{name}"


def resolve(reference: str) -> Callable[..., Any]:
    """Return the function of that name without its decorators. Raises TypeError and any error of its import."""
    module_name, _, name = reference.partition(":")
    module = sys.modules.get(MAIN_TWIN) if module_name == MAIN else importlib.import_module(module_name)
    found = _walk(module, name)
    # A task wraps its function, and the function is what runs here.
    while not isinstance(found, types.FunctionType) and hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    if not callable(found):
        raise TypeError(f"{reference} is not a function in this process")
    function: Callable[..., Any] = found
    return function


def read_main(main: MainModule) -> None:
    """Run the program's script again under another name, without its `if __name__ == "__main__"` block."""
    if not any(main):
        return
    global _is_reading_main  # noqa: PLW0603
    # The script must not run as `__main__`: its `if __name__ == "__main__"` block starts the worker. Afterwards the
    # same module gets both names, so that functions and pickled objects of the script are found under either of them.
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
    """Raise ExecutorError if the script starts a worker while a child imports it: each child would start others."""
    if _is_reading_main:
        raise ExecutorError(
            "the script was imported in the process of a job and started a worker there; move that code below "
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
