"""From `module:name` to something that runs jobs: loading it, and the little that is asked of it."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, runtime_checkable

from glidemq_async.cli.exits import USAGE, CommandError

if TYPE_CHECKING:
    from glidemq_async.tasks.app import GlideMQ

USUAL_NAMES: Final = ("mq", "app", "worker")


@runtime_checkable
class Runnable(AbstractAsyncContextManager[Any], Protocol):
    """What a worker process runs: a Worker, a WorkerPool, or what `app.worker(...)` returns."""

    async def run(self, *, until_empty: bool = False) -> None:
        """Work until it is stopped, or until nothing waits."""
        ...

    def stop(self, *, at_once: bool = False) -> None:
        """Ask `run` to shut down in an orderly way; `at_once` hands back what runs, and may be said later too."""
        ...


@runtime_checkable
class Application(Protocol):
    """What makes its own workers: a GlideMQ."""

    def worker(self, queues: Sequence[str] | None = None, *, concurrency: int = 100) -> Runnable:
        """Return what runs the jobs of these queues."""
        ...


def load(spec: str, directory: Path) -> object:
    """Import what `module:name` names, with `directory` first on the path. Raises CommandError."""
    module_name, _, path = spec.partition(":")
    if not module_name or module_name.endswith(".py") or "/" in module_name:
        raise _bad(spec, "write it as module:name, as in myapp.jobs:mq")
    if (place := str(directory)) not in sys.path[:1]:
        sys.path.insert(0, place)
    module = _import(spec, module_name, directory)
    names = [path] if path else [name for name in USUAL_NAMES if hasattr(module, name)][:1]
    if not names:
        raise _bad(spec, f"module {module_name!r} has none of {', '.join(USUAL_NAMES)}: say which, as in {spec}:name")
    found: object = module
    for part in names[0].split("."):
        if not hasattr(found, part):
            raise _bad(spec, f"module {module_name!r} has no {names[0]!r}{_near(module, names[0])}")
        found = getattr(found, part)
    return found


def _import(spec: str, name: str, directory: Path) -> object:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise _bad(spec, f"there is no module {error.name!r} in {directory} or on the path (--app-dir?)") from None
        raise _bad(spec, f"it imports {error.name!r}, which is not installed") from error
    except SyntaxError as error:
        raise _bad(spec, f"{error.filename}, line {error.lineno}: {error.msg}") from error
    except Exception as error:
        where = _line_of(error)
        raise _bad(spec, f"its import raised {type(error).__name__}: {error}{where}") from error


def _line_of(error: BaseException) -> str:
    """Where an import failed: the last line of the user's that had a part in it."""
    trace = error.__traceback__
    last = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<") and file != __file__ and "importlib" not in file:
            last = f" ({file}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return last


def _near(module: object, wanted: str) -> str:
    import difflib

    found = difflib.get_close_matches(wanted, [name for name in vars(module) if not name.startswith("_")], 1)
    return f": did you mean {found[0]!r}?" if found else ""


def _bad(spec: str, why: str) -> CommandError:
    return CommandError(f"cannot load {spec!r}: {why}", USAGE)


async def runnable_of(spec: str, found: object, *, queues: Sequence[str], **options: float | None) -> Runnable:
    """Return what to run of what was loaded: an application's worker, itself, or what a factory returns.

    `options` are keywords of an application's `worker`, None for those that were not given. Raises CommandError for
    what is none of these, and for options that it does not take.
    """
    found = await _made(spec, found)
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(found, Application) and not inspect.isclass(found):
        try:
            # Any: whether they fit is what is asked here.
            return found.worker(list(queues) or None, **cast("dict[str, Any]", given))
        except (TypeError, ValueError) as error:
            raise CommandError(f"{spec} cannot make a worker: {error}", USAGE) from error
    if not isinstance(found, Runnable) or inspect.isclass(found):
        kind = type(found).__name__
        raise _bad(
            spec, f"it is of type {kind}: wanted is a GlideMQ, a Worker, a WorkerPool, or a function that returns one"
        )
    names = [*(["queue"] if queues else []), *given]
    if names:
        kind = type(found).__name__
        told = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise CommandError(
            f"{told} cannot be used with {spec}: name a GlideMQ app, or say it where this {kind} is made",
            USAGE,
        )
    return found


async def app_of(spec: str, found: object) -> GlideMQ:
    """Return the app that was loaded, or that a factory returns. Raises CommandError for anything else."""
    from glidemq_async.tasks.app import GlideMQ

    found = await _made(spec, found)
    is_app = isinstance(found, GlideMQ)
    if not is_app:
        kind = type(found).__name__
        raise _bad(
            spec, f"it is of type {kind}: wanted is a GlideMQ app, or a function that returns one (--app '' for none)"
        )
    return cast("GlideMQ", found)


async def _made(spec: str, found: object) -> object:
    # Functions alone: a task is called like one, and that would do its work here and now.
    if not (inspect.isroutine(found) or isinstance(found, partial)):
        return found
    factory = cast("Callable[..., object]", found)
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise _bad(spec, f"it is a function that is called without arguments: {error}") from None
    except ValueError:
        pass  # a callable of C, which does not tell
    made = factory()
    return await cast("Awaitable[object]", made) if inspect.isawaitable(made) else made
