"""The ports that supervised processes share: one listener that asks all processes and merges their replies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol

from typing_extensions import override

from glidemq_async._internal.http_endpoint import HttpEndpoint, Page
from glidemq_async._internal.waits import together
from glidemq_async.cli.worker.delegated_ports import Where
from glidemq_async.cli.worker.metrics import is_metrics, merged

PAGE_SECONDS: Final = 5.0
"""Seconds that a process may take for a page. A process with a blocked loop does not reply."""
PROBE_SECONDS: Final = 2.5
"""Seconds that a process may take to answer a probe. `glidemq healthcheck` itself waits for three seconds."""
_PROBES: Final = ("/healthz", "/livez", "/readyz")


class ServingProcess(Protocol):
    """A worker process that serves pages."""

    number: int
    pid: int
    ready: asyncio.Event
    delegated: set[Where]

    async def ask(self, where: Where, path: str, seconds: float) -> Page | None:
        """Return a page, or None if the process does not reply in time."""
        ...


# One listener of the supervisor and not a listener in each process. With SO_REUSEPORT the kernel would choose a process
# for each connection: a probe would test one of them at random, and a scrape would show the counters of another process
# each time. This listener asks all of them. A successor also needs no port that its predecessor still has, and a
# process that does not reply is noticed (docs/internals/worker.md, "Supervised processes").
class SharedPorts:
    """Listens on every port that one of the processes delegates. `numbers` are the numbers of the expected processes.

    A probe asks the newest process of each number that claims jobs, and succeeds if all succeed. A process that starts
    or restarts is alive but not ready. The metrics page contains all processes, distinguished by a label.
    """

    def __init__(self, numbers: Sequence[int], processes: Callable[[], Iterable[ServingProcess]]) -> None:
        self._numbers = numbers
        self._processes = processes
        self._endpoints: dict[Where, HttpEndpoint] = {}
        self._opening = asyncio.Lock()

    async def open(self, where: Where) -> None:
        """Listen; idempotent. Raises OSError."""
        async with self._opening:
            if where not in self._endpoints:
                endpoint = HttpEndpoint(_EveryPath(partial(self._page, where)), host=where[0], port=where[1])
                await endpoint.start()
                self._endpoints[where] = endpoint

    async def close(self) -> None:
        """Stop listening."""
        for endpoint in self._endpoints.values():
            await endpoint.close()

    async def _page(self, where: Where, path: str) -> Page:
        if path in _PROBES and (page := await self._probe(where, path)) is not None:
            return page
        asked = [process for process in self._processes() if where in process.delegated]
        pages = dict(zip(asked, await self._ask(asked, where, path, PAGE_SECONDS), strict=True))
        metrics = {process: page for process, page in pages.items() if page is not None and is_metrics(page)}
        if metrics:
            first = next(iter(metrics.values()))
            bodies = {process.pid: metrics[process].body if process in metrics else None for process in pages}
            return Page(merged(bodies), first.content_type)
        answered = sorted((page for page in pages.values() if page is not None), key=lambda page: page.status)
        return answered[0] if answered else Page(b"no process replied\n", status=HTTPStatus.SERVICE_UNAVAILABLE)

    async def _ask(self, asked: Sequence[ServingProcess], where: Where, path: str, seconds: float) -> list[Page | None]:
        return await together(process.ask(where, path, seconds) for process in asked)

    # -- probes -------------------------------------------------------------------------------------------------------

    async def _probe(self, where: Where, path: str) -> Page | None:
        """Return the reply to a probe, or None if the processes have no such page."""
        chosen = {number: self._newest(where, number) for number in self._numbers}
        asked = [process for process in chosen.values() if process is not None]
        pages = dict(zip(asked, await self._ask(asked, where, path, PROBE_SECONDS), strict=True))
        # A metrics port has no probes. The path then belongs to the pages of the app.
        if any(page is not None and page.status == HTTPStatus.NOT_FOUND for page in pages.values()):
            return None
        workers: dict[str, Any] = {}
        for number, process in chosen.items():
            if process is None:
                workers |= _missing(number, "it is not running", alive=True)
            elif (page := pages[process]) is None:
                # A blocked event loop and a frozen process both look like this, and both should be restarted. A process
                # that is not running counts as alive, because the supervisor restarts it: a restart of the whole
                # container would interrupt the others.
                workers |= _missing(number, f"it did not reply within {PROBE_SECONDS:g} s", alive=False)
            else:
                workers |= json.loads(page.body)["workers"]
        well = all(each["ready" if path == "/readyz" else "alive"] for each in workers.values())
        body = {"status": "ok" if well else "failing", "workers": workers}
        status = HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE
        return Page(json.dumps(body).encode() + b"\n", "application/json", status)

    def _newest(self, where: Where, number: int) -> ServingProcess | None:
        """Return the process to ask. A successor replaces its predecessor when it claims jobs."""
        there = [each for each in self._processes() if each.number == number and where in each.delegated]
        return next((each for each in reversed(there) if each.ready.is_set()), there[-1] if there else None)


def _missing(number: int, problem: str, *, alive: bool) -> dict[str, Any]:
    about = {"queue": None, "alive": alive, "ready": False, "running": 0, "problems": [problem]}
    return {f"process {number}": about}


class _EveryPath(Mapping[str, Callable[[], Awaitable[Page]]]):
    """Pages that only the processes know."""

    def __init__(self, page: Callable[[str], Awaitable[Page]]) -> None:
        self._page = page

    @override
    def __getitem__(self, path: str) -> Callable[[], Awaitable[Page]]:
        return partial(self._page, path)

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(())

    @override
    def __len__(self) -> int:
        return 0
