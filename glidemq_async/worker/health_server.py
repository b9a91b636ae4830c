"""The endpoints `/healthz` and `/readyz` for the workers of a process. They run in the workers' event loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Protocol

from glidemq_async._internal.background import Background
from glidemq_async._internal.http_endpoint import HttpEndpoint, Page, Pages
from glidemq_async.options.validation import port as check_port
from glidemq_async.worker.health import Health


class HasHealth(Protocol):
    """The part of Worker that the endpoints use."""

    @property
    def name(self) -> str:
        """The name of the worker."""
        ...

    @property
    def queue(self) -> str:
        """The name of the worker's queue."""
        ...

    def health(self) -> Health:
        """Return the current health."""
        ...


class HealthServer(Background):
    """Serves health probes: 200 if all workers are healthy, else 503, with the reasons in a JSON body.

    `/healthz` (also `/livez`) checks `health().alive` of each worker, and `/readyz` checks `ready`. The server runs in
    the event loop of the workers, so a blocked loop does not answer, which a probe treats as unhealthy. `pages` adds
    further paths, for example `{"/metrics": metrics.page}` for Prometheus; each is a coroutine function that returns a
    Page. `host` None listens on every address. `port` 0 uses a free port on the loopback address. Raises OSError when
    the port is in use.

    `Worker(health_port=...)` and `WorkerPool(health_port=...)` start a server automatically.
    """

    def __init__(
        self,
        workers: Sequence[HasHealth],
        port: int,
        *,
        host: str | None = None,
        pages: Pages | None = None,
    ) -> None:
        check_port("health_port", port)
        self._workers = workers
        # With port 0, listening on two address families would result in two different ports.
        address = host or (None if port else "127.0.0.1")
        alive = partial(self._probe, lambda health: health.alive)
        ready = partial(self._probe, lambda health: health.ready)
        probes = {"/healthz": alive, "/livez": alive, "/readyz": ready}
        self._endpoint = HttpEndpoint({**probes, **(pages or {})}, host=address, port=port, purpose="health")

    @property
    def port(self) -> int:
        """The port of the server; before `start`, the requested port."""
        return self._endpoint.port

    async def start(self) -> None:
        """Start to listen. Idempotent. Raises OSError when the port is in use."""
        await self._endpoint.start()

    async def close(self) -> None:
        """Stop listening and close every connection. Idempotent."""
        await self._endpoint.close()

    async def _probe(self, well: Callable[[Health], bool]) -> Page:
        found = [(worker, worker.health()) for worker in self._workers]
        all_well = all(well(health) for _, health in found)
        body = {
            "status": "ok" if all_well else "failing",
            "workers": {worker.name: _as_json(worker.queue, health) for worker, health in found},
        }
        status = HTTPStatus.OK if all_well else HTTPStatus.SERVICE_UNAVAILABLE
        return Page(json.dumps(body).encode() + b"\n", "application/json", status)


def _as_json(queue: str, health: Health) -> dict[str, object]:
    return {
        "queue": queue,
        "alive": health.alive,
        "ready": health.ready,
        "running": health.running,
        "problems": health.problems,
    }
