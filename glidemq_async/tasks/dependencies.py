"""Dependencies of tasks: the worker provides `db: Db = Depends(connect)`, per job or once per worker.

Providers are called in the event loop, each at most once per job, and closed in the opposite order.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Container, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast, get_args, get_origin, get_type_hints, overload

T = TypeVar("T")

Scope: TypeAlias = Literal["job", "worker"]
Provider: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Dependency:
    """The default value that `Depends` puts into a signature."""

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
    """Declare, as the default of a parameter, that the worker provides its value.

    `provider` is a function, a coroutine function, a generator or async generator function that yields once (the code
    after the yield closes the value), a function of `@asynccontextmanager`, or a class that is an async context
    manager. Its own parameters may have dependencies too. It runs in the worker's event loop.

    - `scope="job"`: created once for each job that needs it, and closed after the run. An exception of the run is
      raised at the yield.
    - `scope="worker"`: created when a job first needs it, shared by all jobs of this process's worker, and closed when
      the worker stops. If its creation fails, the next job tries again.

    `add` does not take parameters that have a provider. When you call the function directly, pass them yourself. Raises
    TypeError or ValueError for an invalid provider.
    """
    if not callable(provider):
        raise TypeError(f"the provider of a dependency must be a function or class, not {provider!r}")
    if scope not in ("job", "worker"):
        raise ValueError(f'scope must be "job" or "worker", got {scope!r}')
    return Dependency(provider, scope)


class ProviderNode:
    """A provider with the providers that it depends on."""

    __slots__ = ("needs", "open", "provider", "scope")

    def __init__(self, provider: Provider, scope: Scope, needs: dict[str, ProviderNode]) -> None:
        self.provider = provider
        self.scope = scope
        self.needs = needs
        self.open = _opener(provider)
        """Creates a context manager. None for a plain function, whose value is not closed."""


def injected(function: Callable[..., Any]) -> dict[str, ProviderNode]:
    """Return the parameters of a function that are injected, with their providers.

    Raises TypeError for a provider with other required parameters, for a cycle of providers, and for a provider with
    the scope "worker" that depends on one with the scope "job".
    """
    found = _declared(function)
    _check_positions(function, found)
    return {name: _node(dependency, ()) for name, dependency in found.items()}


def node_of(provider: Provider, scope: Scope) -> ProviderNode:
    """Return the node of a single provider. Raises the same errors as `injected`."""
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


def _check_positions(function: Callable[..., Any], found: dict[str, Dependency]) -> None:
    """Check that injected parameters come after positional ones or are keyword-only, so that positions do not shift."""
    name_of = getattr(function, "__name__", repr(function))
    before = ""
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in found:
            if before and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL):
                raise TypeError(
                    f"{name_of}: the dependency {before!r} comes before the argument {name!r}, so positional arguments "
                    f"would be ambiguous; move the dependency {before!r} after {name!r}, or after a `*`"
                )
        elif parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            before = name
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            raise TypeError(
                f"{name_of}: the dependency {name!r} is positional-only, but workers pass dependencies by keyword; "
                "move it after the `/`"
            )


def _node(dependency: Dependency, above: tuple[Provider, ...]) -> ProviderNode:
    # `above` is the path to this provider and not all that was visited: two branches may depend on the same provider,
    # and share its value.
    provider = dependency.provider
    _refuse_cycle(provider, above)
    declared = _declared(provider)
    _check_parameters(provider, declared)
    needs = {name: _node(each, (*above, provider)) for name, each in declared.items()}
    for each in needs.values():
        if dependency.scope == "worker" and each.scope == "job":
            raise TypeError(
                f"{_name(provider)} has the scope 'worker' and cannot depend on {_name(each.provider)}, which has "
                "the scope 'job'; give that one scope='worker' too"
            )
    return ProviderNode(provider, dependency.scope, needs)


def _parameters(provider: Provider) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(provider).parameters)
    except ValueError:  # some built-in classes have no signature
        return {}


def _name(provider: Provider) -> str:
    return getattr(provider, "__qualname__", None) or repr(provider)


def _opener(provider: Provider) -> Callable[..., AbstractAsyncContextManager[Any]] | None:
    if inspect.isasyncgenfunction(provider):
        return asynccontextmanager(provider)
    if inspect.isgeneratorfunction(provider):
        return _in_loop(contextmanager(provider))
    made = getattr(provider, "__wrapped__", None)
    # An object that a plain function returns is not entered, even if it could be: it may be a pool that is already
    # open.
    if inspect.isasyncgenfunction(made) or (inspect.isclass(provider) and hasattr(provider, "__aenter__")):
        return cast("Callable[..., AbstractAsyncContextManager[Any]]", provider)
    return _in_loop(provider) if inspect.isgeneratorfunction(made) else None


def _in_loop(
    opener: Callable[..., AbstractContextManager[Any]],
) -> Callable[..., AbstractAsyncContextManager[Any]]:
    @asynccontextmanager
    async def opened(**needs: Any) -> AsyncGenerator[Any]:
        # In the event loop, so that a generator is opened and closed in one thread and shares the context variables of
        # the run. One that blocks delays every job of the worker.
        with opener(**needs) as value:
            yield value

    return opened


def _refuse_cycle(provider: Provider, above: tuple[Provider, ...]) -> None:
    if provider in above:
        circle = " -> ".join(_name(each) for each in (*above, provider))
        raise TypeError(f"the dependencies form a cycle: {circle}")


def _check_parameters(provider: Provider, declared: Container[str]) -> None:
    """Raise TypeError if a parameter of a provider has neither a default nor a dependency."""
    for name, parameter in _parameters(provider).items():
        is_variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if name not in declared and parameter.default is parameter.empty and not is_variadic:
            raise TypeError(f"the dependency {_name(provider)} needs {name!r}; give it a default, or Depends(...)")
