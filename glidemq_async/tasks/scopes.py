"""The values of dependencies: per job, and shared by all jobs of a worker."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self

from glidemq_async.tasks.dependencies import Provider, ProviderNode, node_of
from glidemq_async.tasks.open_context import OpenContext


class Overrides:
    """Replacements of providers, for tests."""

    def __init__(self) -> None:
        self._nodes: dict[Provider, Provider] = {}

    @contextmanager
    def replaced(self, provider: Provider, by: Provider) -> Generator[None]:
        """Use `by` instead of `provider` inside the block."""
        node_of(by, "job")
        before = self._nodes.get(provider)
        self._nodes[provider] = by
        try:
            yield
        finally:
            if before is None:
                self._nodes.pop(provider, None)
            else:
                self._nodes[provider] = before

    def of(self, node: ProviderNode) -> ProviderNode:
        """Return the replacement of a node, or the node itself."""
        # At each use, so that an override also replaces a provider that other providers depend on.
        if self._nodes and (other := self._nodes.get(node.provider)) is not None:
            return node_of(other, "job" if node.scope == "job" else "worker")
        return node


class WorkerScope:
    """The dependencies with the scope "worker": created by the first job that needs them, closed with the worker."""

    def __init__(self, overrides: Overrides) -> None:
        self._overrides = overrides
        self._kept: dict[Provider, OpenContext] = {}
        self._opened: list[Provider] = []
        """In the order of creation, which can differ from the order of the requests."""

    async def get(self, node: ProviderNode) -> Any:
        """Return a dependency, and create it if necessary. Raises the exceptions of its provider."""
        node = self._overrides.of(node)
        # Stored before it is awaited, so that two jobs which need the value first share one creation.
        kept = self._kept.get(node.provider)
        if kept is None:
            kept = self._kept[node.provider] = OpenContext(self._opening(node))
        try:
            return await kept.value()
        except BaseException:
            # Either the provider has failed, or the job that waits here was cancelled. In the second case other jobs
            # may still need the value, so it stays.
            if kept.has_failed and self._kept.get(node.provider) is kept:
                del self._kept[node.provider]
                await kept.close()
            raise

    @asynccontextmanager
    async def _opening(self, node: ProviderNode) -> AsyncGenerator[Any]:
        needs = {name: await self.get(each) for name, each in node.needs.items()}
        if node.open is None:
            yield await _called(node, needs)
            return
        async with node.open(**needs) as value:
            self._opened.append(node.provider)
            yield value

    async def close(self) -> None:
        """Close all values, the latest first. Raise the first error after all are closed."""
        errors: list[Exception] = []
        opened, self._opened = self._opened, []
        # A value is opened after the values that it needs, so the reverse order closes each value before the ones that
        # it still uses. `_kept` alone has the order of the requests: a provider is requested first and then waits for
        # its needs. Values that are still being opened come last, and closing cancels them.
        order = dict.fromkeys([*reversed(opened), *self._kept])
        for kept in [self._kept[provider] for provider in order if provider in self._kept]:
            try:
                await kept.close()
            except Exception as error:  # noqa: BLE001 - the others are closed first
                errors.append(error)
        self._kept.clear()
        if errors:
            raise errors[0]


class JobScope:
    """The dependencies of one job, as an async context manager around its function."""

    def __init__(self, worker: WorkerScope, overrides: Overrides) -> None:
        self._worker = worker
        self._overrides = overrides
        self._stack = AsyncExitStack()
        self._made: dict[Provider, Any] = {}

    async def resolve(self, nodes: Mapping[str, ProviderNode]) -> dict[str, Any]:
        """Return the values of the injected parameters."""
        return {name: await self._get(node) for name, node in nodes.items()}

    async def _get(self, node: ProviderNode) -> Any:
        if node.scope == "worker":
            return await self._worker.get(node)
        node = self._overrides.of(node)
        # By provider and not by parameter: two parameters with the same provider get the same value, for example one
        # database session.
        if node.provider not in self._made:
            needs = await self.resolve(node.needs)
            if node.open is None:
                value = await _called(node, needs)
            else:
                value = await self._stack.enter_async_context(node.open(**needs))
            self._made[node.provider] = value
        return self._made[node.provider]

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A dependency sees the failure of the run and may raise another exception, but it cannot suppress the failure.
        await self._stack.__aexit__(kind, error, trace)


async def _called(node: ProviderNode, needs: dict[str, Any]) -> Any:
    value = node.provider(**needs)
    return await value if inspect.isawaitable(value) else value
