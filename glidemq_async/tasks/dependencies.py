"""What a task asks for: `db: Db = Depends(connect)` is provided by the worker, for each job or once for all.

Providers are resolved in the event loop, each at most once per job, and closed in the opposite order.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints, overload

T = TypeVar("T")

Scope: TypeAlias = Literal["job", "worker"]
Provider: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Dependency:
    """What `Depends` leaves in a signature."""

    provider: Provider
    scope: Scope


@overload
def Depends(provider: Callable[..., AbstractAsyncContextManager[T]], *, scope: Scope = "job") -> T: ...
@overload
def Depends(provider: Callable[..., AsyncIterator[T]], *, scope: Scope = "job") -> T: ...
@overload
def Depends(provider: Callable[..., Iterator[T]], *, scope: Scope = "job") -> T: ...
@overload
def Depends(provider: Callable[..., Awaitable[T]], *, scope: Scope = "job") -> T: ...
@overload
def Depends(provider: Callable[..., T], *, scope: Scope = "job") -> T: ...


def Depends(provider: Provider, *, scope: Scope = "job") -> Any:  # noqa: N802
    """Declare, as the default of a parameter, that the worker provides it.

    `provider` is a function, a coroutine function, a generator or async generator function that yields once (what
    follows the yield closes it), a function of `@asynccontextmanager`, or a class that is an async context manager.
    Its own parameters may depend on others in the same way. It runs in the worker's event loop.

    - `scope="job"`: made for each job that needs it, once per job, and closed when its run has ended; the run's
      exception is raised at the yield.
    - `scope="worker"`: made when a job first needs it, shared by all jobs of this process's worker, and closed when the
      worker stops. One that could not be made is tried again by the next job.

    A parameter that is provided is none of `add`; who calls the function plainly passes it. Raises TypeError or
    ValueError for what cannot be a provider.
    """
    if not callable(provider):
        raise TypeError(f"a dependency needs a function that provides it, got {provider!r}")
    if scope not in ("job", "worker"):
        raise ValueError(f'scope must be "job" or "worker", got {scope!r}')
    return Dependency(provider, scope)


class Node:
    """One provider with the providers that it needs itself."""

    __slots__ = ("needs", "open", "provider", "scope")

    def __init__(self, provider: Provider, scope: Scope, needs: dict[str, Node]) -> None:
        self.provider = provider
        self.scope = scope
        self.needs = needs
        self.open = _opener(provider)
        """Makes a context manager, or None: a plain function's value needs no closing."""


def injected(function: Callable[..., Any]) -> dict[str, Node]:
    """Return the parameters of a function that are provided, with what provides them.

    Raises TypeError for a provider with parameters that nobody provides, for providers that need each other in a
    circle, and for one of a worker that needs one of a job.
    """
    found = _declared(function)
    _check_places(function, found)
    return {name: _node(dependency, ()) for name, dependency in found.items()}


def node_of(provider: Provider, scope: Scope) -> Node:
    """Return the node of a provider by itself. Raises as `injected` does."""
    return _node(Dependency(provider, scope), ())


def _declared(function: Callable[..., Any]) -> dict[str, Dependency]:
    found = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
        if isinstance(parameter.default, Dependency)
    }
    return _annotated(function) | found


def _annotated(function: Callable[..., Any]) -> dict[str, Dependency]:
    try:
        hints = get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - annotations that only type checkers can resolve say nothing here
        return {}
    return {
        name: extra
        for name, hint in hints.items()
        if get_origin(hint) is Annotated
        for extra in get_args(hint)[1:]
        if isinstance(extra, Dependency)
    }


def _check_places(function: Callable[..., Any], found: dict[str, Dependency]) -> None:
    """Positional arguments keep their places: what is injected comes after them, or by keyword only."""
    name_of = getattr(function, "__name__", repr(function))
    before = ""
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in found:
            if before and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL):
                raise TypeError(f"{name_of}: put the dependency {before!r} behind {name!r}, or behind a `*`")
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            before = name
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            raise TypeError(f"{name_of}: the dependency {name!r} must be passable by keyword")


def _node(dependency: Dependency, above: tuple[Provider, ...]) -> Node:
    provider = dependency.provider
    if provider in above:
        circle = " -> ".join(_name(each) for each in (*above, provider))
        raise TypeError(f"dependencies need each other in a circle: {circle}")
    declared = _declared(provider)
    for name, parameter in _parameters(provider).items():
        optional = parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        if name not in declared and not optional:
            raise TypeError(f"the dependency {_name(provider)} needs {name!r}: give it a default, or Depends(...)")
    needs = {name: _node(each, (*above, provider)) for name, each in declared.items()}
    for each in needs.values():
        if dependency.scope == "worker" and each.scope == "job":
            raise TypeError(
                f"{_name(provider)} is kept for the whole worker and cannot need {_name(each.provider)}, which is "
                'made for one job: give that one scope="worker" too'
            )
    return Node(provider, dependency.scope, needs)


def _parameters(provider: Provider) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(provider).parameters)
    except ValueError:  # of some built-in classes nothing is known
        return {}


def _name(provider: Provider) -> str:
    return getattr(provider, "__qualname__", None) or repr(provider)


def _opener(provider: Provider) -> Callable[..., AbstractAsyncContextManager[Any]] | None:
    if inspect.isasyncgenfunction(provider):
        return asynccontextmanager(provider)
    if inspect.isgeneratorfunction(provider):
        return _in_loop(contextmanager(provider))
    made = getattr(provider, "__wrapped__", None)
    # An object that a plain function returns is not entered, even if it could be: a pool may be open already.
    if inspect.isasyncgenfunction(made) or (inspect.isclass(provider) and hasattr(provider, "__aenter__")):
        return cast("Callable[..., AbstractAsyncContextManager[Any]]", provider)
    return _in_loop(provider) if inspect.isgeneratorfunction(made) else None


def _in_loop(
    opener: Callable[..., AbstractContextManager[Any]],
) -> Callable[..., AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def opened(**needs: Any) -> AsyncGenerator[Any]:
        with opener(**needs) as value:
            yield value

    return opened
