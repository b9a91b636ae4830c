"""Loading the object that `module:name` refers to, and the protocols that it must satisfy."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

from glidemq_async.cli.exits import USAGE, CommandError

if TYPE_CHECKING:
    from glidemq_async.tasks.app import GlideMQ

USUAL_NAMES: Final = ("mq", "app", "worker")


@runtime_checkable
class Runnable(AbstractAsyncContextManager[Any], Protocol):
    """An object that a worker process runs: a Worker, a WorkerPool, or the result of `app.worker(...)`."""

    async def run(self, *, until_empty: bool = False) -> None:
        """Run jobs until it is stopped, or until no job waits."""
        ...

    def stop(self, *, immediately: bool = False) -> None:
        """Ask `run` to shut down gracefully. `immediately` releases running jobs; it can follow a first call."""
        ...


@runtime_checkable
class Application(Protocol):
    """An app that creates its own workers: a GlideMQ."""

    def worker(self, queues: Sequence[str] | None = None, *, concurrency: int = 100) -> Runnable:
        """Return a worker for these queues."""
        ...


def load(spec: str, directory: Path) -> object:
    """Import the object `module:name`, with `directory` first on the path. Raises CommandError."""
    module_name, _, path = spec.partition(":")
    if not module_name or module_name.endswith(".py") or "/" in module_name:
        raise _bad(spec, "write it as module:name, as in myapp.jobs:mq")
    if (folder := str(directory)) not in sys.path[:1]:
        sys.path.insert(0, folder)
    module = _import(spec, module_name, directory)
    names = [path] if path else [name for name in USUAL_NAMES if hasattr(module, name)][:1]
    if not names:
        raise _bad(
            spec, f"module {module_name!r} has none of {', '.join(USUAL_NAMES)}; name the object, as in {spec}:name"
        )
    try:
        return attrgetter(names[0])(module)
    except AttributeError:
        raise _bad(spec, f"module {module_name!r} has no {names[0]!r}{_suggestion(module, names[0])}") from None


def _import(spec: str, name: str, directory: Path) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Two different mistakes raise this error: the app's module does not exist, or it exists and imports something
        # that does not.
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise _bad(
                spec, f"module {error.name!r} was not found in {directory} or on the path; check --app-dir"
            ) from None
        raise _bad(spec, f"it imports {error.name!r}, which is not installed") from error
    except SyntaxError as error:
        raise _bad(spec, f"{error.filename}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        where = _line_of(error)
        raise _bad(spec, f"its import raised {type(error).__name__}: {error}{where}") from error


def _line_of(error: BaseException) -> str:
    """Return the place where an import failed: the last user line in the traceback."""
    trace = error.__traceback__
    last = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<") and file != __file__ and "importlib" not in file:
            last = f" ({file}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return last


def _suggestion(module: object, wanted: str) -> str:
    import difflib

    found = difflib.get_close_matches(wanted, [name for name in vars(module) if not name.startswith("_")], 1)
    return f": did you mean {found[0]!r}?" if found else ""


def _bad(spec: str, why: str) -> CommandError:
    return CommandError(f"cannot load {spec!r}: {why}", USAGE)


async def runnable_of(spec: str, found: object, *, queues: Sequence[str], **options: float | str | None) -> Runnable:
    """Return the object to run: the loaded object, the worker of an app, or the result of a factory function.

    `options` are keywords of the app's `worker`; None means not given. Raises CommandError for an object of another
    type, and for options that it does not accept.
    """
    found = await _made(spec, found)
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(found, Application) and not inspect.isclass(found):
        try:
            # Any: this call checks whether they fit.
            return found.worker(list(queues) or None, **cast("dict[str, Any]", given))
        except (ImportError, TypeError, ValueError) as error:
            raise CommandError(f"{spec} cannot make a worker: {error}", USAGE) from error
    if not isinstance(found, Runnable) or inspect.isclass(found):
        kind = type(found).__name__
        raise _bad(spec, f"it is of type {kind}; use a GlideMQ, a Worker, a WorkerPool, or a function that returns one")
    _refuse_options(spec, found, [*(["queue"] if queues else []), *given])
    return found


def _refuse_options(spec: str, found: Runnable, names: Sequence[str]) -> None:
    """Raise CommandError if options were given for an object that was created with its own ones."""
    if names:
        kind = type(found).__name__
        named = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise CommandError(
            f"{named} cannot be used with {spec}; use a GlideMQ app, or set it where this {kind} is created",
            USAGE,
        )


async def app_of(spec: str, found: object) -> GlideMQ:
    """Return the loaded app, or the app that a factory returns, with its included modules.

    Raises CommandError for anything else, and for a module that cannot be imported.
    """
    from glidemq_async.tasks.app import GlideMQ, core_of

    found = await _made(spec, found)
    if not isinstance(found, GlideMQ):
        kind = type(found).__name__
        raise _bad(spec, f"it is of type {kind}; use a GlideMQ app or a function that returns one (--app '' for none)")
    app: GlideMQ[Any] = found  # pyright: ignore[reportUnknownVariableType]
    try:
        core_of(app).settings.included.load()
    except ImportError as error:
        raise _bad(spec, str(error)) from error
    return app


async def _made(spec: str, found: object) -> object:
    # Only functions are called. A task is callable too, but a call would run its work here.
    if not (inspect.isroutine(found) or isinstance(found, partial)):
        return found
    factory = cast("Callable[..., object]", found)
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise _bad(spec, f"the function must be callable without arguments: {error}") from None
    except ValueError:
        pass  # a C callable without a signature
    made = factory()
    return await cast("Awaitable[object]", made) if inspect.isawaitable(made) else made
