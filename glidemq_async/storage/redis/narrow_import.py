"""Imports redis-py's connections without its clients and commands, and without OpenTelemetry's SDK.

A worker opens connections with redis-py and does the rest itself. The `__init__` modules of `redis` and `redis.asyncio`
nevertheless import every client, every command and the Cluster, and `redis.observability` imports the SDK if it is
installed, only to annotate a type. These delay the start of a worker.
"""

# The two packages are put into `sys.modules` before their `__init__` has run. Their submodules can then be imported
# normally. The first access to a name that a package does not have yet runs its `__init__`. An application that imports
# redis-py itself therefore sees complete packages, and the same classes.
#
# `importlib.util.LazyLoader` cannot do this: the import of a submodule reads `__path__` of its package, which makes
# LazyLoader run the `__init__`.
#
# Like LazyLoader, the lock is held while `__init__` runs, so other threads wait for a complete package. It is reentrant
# because `__init__` imports submodules that import names from the package. They see a partial package, as they do in a
# normal import.

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any, Final, cast

from typing_extensions import override

_PACKAGES: Final = ("redis", "redis.asyncio")
_SDK: Final = "opentelemetry.sdk.metrics"
_lock: Final = threading.RLock()


class _Deferred(ModuleType):
    """A package whose `__init__` runs when one of its names is first used."""

    # Any, because these are the names of another package.
    def __getattr__(self, name: str) -> Any:
        with _lock:
            if "_deferred_spec" in self.__dict__ and _is_module(f"{self.__name__}.{name}"):
                # `from redis import exceptions`. The submodules of redis-py import each other in this way, and running
                # `__init__` in between would make an import circle.
                return importlib.import_module(f"{self.__name__}.{name}")
            spec = self.__dict__.pop("_deferred_spec", None)
            if spec is not None:
                try:
                    spec.loader.exec_module(self)
                except BaseException:
                    self.__dict__["_deferred_spec"] = spec
                    raise
                self.__class__ = ModuleType  # type: ignore[assignment] # it only loses this `__getattr__`
        try:
            return self.__dict__[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None


def import_connections() -> None:
    """Import `redis.asyncio.connection`. Its packages stay incomplete until one of their names is used.

    Raises ImportError. Does nothing if redis-py has been imported.
    """
    with _lock:
        for name in _PACKAGES:
            if name not in sys.modules:
                _defer(name)
        with _without_sdk():
            importlib.import_module("redis.asyncio.connection")


class _Absent(MetaPathFinder):
    """Refuses to find the SDK for the thread that creates this finder. Other threads can import it."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    @override
    def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> None:
        if fullname == _SDK and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"{_SDK} is not imported here", name=_SDK)


@contextmanager
def _without_sdk() -> Generator[None]:
    """Import as if the SDK was not installed. redis-py measures with the API, so its metrics work nevertheless."""
    finder = _Absent()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _is_module(name: str) -> bool:
    return not name.endswith("__") and importlib.util.find_spec(name) is not None


def _defer(name: str) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    package = importlib.util.module_from_spec(spec)
    package.__dict__["_deferred_spec"] = spec
    package.__class__ = _Deferred
    sys.modules[name] = package
    parent, _, child = name.rpartition(".")
    if parent:
        cast("dict[str, object]", sys.modules[parent].__dict__)[child] = package
