"""Finds an executor by name: the built-in ones, then the entry points of installed packages."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import partial
from types import FunctionType, MethodType
from typing import Any, Final

from glidemq_async.executors.calls import is_coroutine_function
from glidemq_async.executors.inline import InlineExecutor
from glidemq_async.executors.permissions import Permissions
from glidemq_async.executors.protocol import ChecksHandlers, Executor
from glidemq_async.executors.thread import ThreadExecutor

GROUP: Final = "glidemq_async.executors"
BUILT_IN: Final = ("inline", "thread", "subprocess")
_TYPO: Final = 0.75
"""The similarity from which an unknown name counts as a typo."""


def open_executor(
    spec: str | Executor | None, handler: Callable[..., Any], concurrency: int, permissions: Permissions | None = None
) -> Executor:
    """Return the executor of a worker: the given one, the one of that name, or one that fits the handler.

    "subprocess" gets the `permissions` if there are any. An entry point of the group "glidemq_async.executors" is
    called with the concurrency, and with `permissions=` if there are any.

    Raises ValueError for an unknown name. Raises TypeError for a handler that the executor cannot run: a plain function
    on the inline executor, which would block the event loop, or a function that the processes of the subprocess
    executor cannot import. Raises TypeError for permissions with an executor that runs in this process, because it
    cannot enforce them.
    """
    executor = _open(spec, handler, concurrency, permissions)
    if isinstance(executor, ChecksHandlers):
        executor.check_handler(handler)
    return executor


def check_executor(spec: object) -> None:
    """Raise TypeError for an `executor=` that is neither None, a name nor an Executor, ValueError for a typo."""
    if isinstance(spec, str):
        _check_name(spec)
    if isinstance(spec, type):
        raise TypeError(
            f"executor must be a name or an Executor, got the class {spec.__name__}; pass an instance of it"
        )
    if spec is not None and not isinstance(spec, str | Executor):
        names = ", ".join(BUILT_IN)
        raise TypeError(f"executor must be a name or an Executor, got {spec!r}; the built-in names are {names}")


# A name without a match may be the executor of a package that is only installed where workers run. The worker refuses
# it when it is created. A process that only adds jobs must be able to declare the task.
def _check_name(name: str) -> None:
    """Raise ValueError for a name that is not known and resembles one that is."""
    if name in BUILT_IN:
        return
    from importlib.metadata import entry_points

    known = [*BUILT_IN, *sorted(found.name for found in entry_points(group=GROUP))]
    if name not in known and get_close_matches(name, known, 1, _TYPO):
        raise _unknown(name, known)


def _unknown(name: str, known: Sequence[str]) -> ValueError:
    near = get_close_matches(name, known, 1, _TYPO)
    hint = f"did you mean {near[0]!r}? The" if near else "the"
    return ValueError(f"unknown executor {name!r}; {hint} known ones are {', '.join(known)}")


def check_parameters(handler: Callable[..., Any], executor: Executor, value: str) -> None:
    """Raise TypeError for a handler that certainly cannot be called with one value. `value` describes it.

    Accepts all handlers of executors that are not built in, which may pass something else, for example a Spark session.
    """
    kinds: list[type] = [InlineExecutor, ThreadExecutor]
    if (loaded := sys.modules.get("glidemq_async.executors.subprocess")) is not None:
        kinds.append(loaded.SubprocessExecutor)
    given: Any = handler
    function: Any = given.func if isinstance(given, partial) else handler
    # Decorators may show another signature than they have.
    is_plain = isinstance(function, FunctionType | MethodType) and not hasattr(function, "__wrapped__")
    if type(executor) not in kinds or not is_plain or hasattr(function, "__signature__"):
        return
    signature = inspect.signature(handler)
    try:
        signature.bind(None)
    except TypeError as error:
        shown = f"{function.__qualname__}{signature.replace(return_annotation=inspect.Signature.empty)}"
        parameter = "job: Job" if value == "a job" else "jobs: list[Job]"
        raise TypeError(
            f"{shown} cannot be a handler: the worker calls it with {value} and nothing else ({error}); declare it "
            f"with one parameter, `{parameter}`"
        ) from None


def check_permissions(spec: str | Executor | None, permissions: Permissions | None) -> None:
    """Raise TypeError for permissions with an executor that cannot enforce them, or that is already created."""
    if permissions is None:
        return
    if spec in (None, "inline", "thread") or isinstance(spec, InlineExecutor | ThreadExecutor):
        raise TypeError(f"executor={spec!r} cannot enforce permissions; use executor='subprocess'")
    if not isinstance(spec, str):
        raise TypeError(
            f"permissions= cannot be combined with executor={spec!r}, which is already created; pass them to the "
            "executor, as in SubprocessExecutor(n, permissions=...)"
        )


def _open(
    spec: str | Executor | None, handler: Callable[..., Any], concurrency: int, permissions: Permissions | None
) -> Executor:
    check_permissions(spec, permissions)
    is_async = is_coroutine_function(handler)
    if spec is None:
        spec = "inline" if is_async else "thread"
    if not isinstance(spec, str):
        check_executor(spec)
        return spec
    if spec == "inline" and not is_async:
        raise TypeError(f"{handler!r} is a plain function and would block the event loop; use executor='thread'")
    if spec == "thread" and is_async:
        raise TypeError(f"{handler!r} is a coroutine function, and threads run plain ones; use executor='inline'")
    return _open_by_name(spec, concurrency, permissions)


def _open_by_name(spec: str, concurrency: int, permissions: Permissions | None) -> Executor:
    if spec == "inline":
        return InlineExecutor()
    if spec == "thread":
        return ThreadExecutor(concurrency)
    if spec == "subprocess":
        from glidemq_async.executors.subprocess import SubprocessExecutor

        return SubprocessExecutor(min(concurrency, os.cpu_count() or 1), permissions=permissions)
    return _registered(spec, concurrency, permissions)


def _registered(name: str, concurrency: int, permissions: Permissions | None) -> Executor:
    # The built-in names come first: reading the entry points of all installed packages takes time.
    given = {} if permissions is None else {"permissions": permissions}
    from importlib.metadata import entry_points

    known = entry_points(group=GROUP)
    for found in known:
        if found.name == name:
            executor: Executor = found.load()(concurrency, **given)
            return executor
    raise _unknown(name, [*BUILT_IN, *sorted(found.name for found in known)])
