"""`GET /healthz` and `/readyz` of the workers of a process, for probes; served in their own loop."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final, Protocol

from glidemq_async._internal.background import Background
from glidemq_async._internal.http_endpoint import HttpEndpoint, Page, Pages
from glidemq_async.options.validation import whole_number
from glidemq_async.worker.health import Health

LAST_PORT: Final = 65_535


class Judged(Protocol):
    """What has a health: a Worker."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def queue(self) -> str:
        """The name of the queue that it works on."""
        ...

    def health(self) -> Health:
        """How it is now."""
        ...


class HealthServer(Background):
    """Answers probes about workers: 200 when all of them are well, else 503; the body is JSON and tells why.

    `/healthz` (also `/livez`) asks `health().alive` of each, `/readyz` asks `ready`. It lives in the loop of the
    workers, so a loop that does not turn answers nothing, which a probe takes for what it is. `pages` adds others,
    `{"/metrics": metrics.page}` for a Prometheus: coroutine functions that return a Page. `host` None listens on every
    address; `port` 0 takes a free one, of the loopback address then. Raises OSError when the port is taken.

    `Worker(health_port=...)` and `WorkerPool(health_port=...)` start one by themselves.
    """

    def __init__(
        self,
        workers: Sequence[Judged],
        port: int,
        *,
        host: str | None = None,
        pages: Pages | None = None,
    ) -> None:
        if whole_number("health_port", port, least=0) > LAST_PORT:
            raise ValueError(f"health_port must be from 0 to {LAST_PORT}, got {port!r}")
        self._workers = workers
        # Free ports of two address families would be two ports.
        address = host or (None if port else "127.0.0.1")
        alive = partial(self._judge, lambda health: health.alive)
        ready = partial(self._judge, lambda health: health.ready)
        probes = {"/healthz": alive, "/livez": alive, "/readyz": ready}
        self._endpoint = HttpEndpoint({**probes, **(pages or {})}, host=address, port=port, purpose="health")

    @property
    def port(self) -> int:
        """The port it listens on; that asked for before `start`."""
        return self._endpoint.port

    async def start(self) -> None:
        """Listen from now on; idempotent. Raises OSError when the port is taken."""
        await self._endpoint.start()

    async def close(self) -> None:
        """Stop listening and drop every connection; idempotent."""
        await self._endpoint.close()

    async def _judge(self, well: Callable[[Health], bool]) -> Page:
        found = [(worker, worker.health()) for worker in self._workers]
        all_well = all(well(health) for _, health in found)
        body = {
            "status": "ok" if all_well else "failing",
            "workers": {worker.name: _told(worker.queue, health) for worker, health in found},
        }
        status = HTTPStatus.OK if all_well else HTTPStatus.SERVICE_UNAVAILABLE
        return Page(json.dumps(body).encode() + b"\n", "application/json", status)


def _told(queue: str, health: Health) -> dict[str, object]:
    return {
        "queue": queue,
        "alive": health.alive,
        "ready": health.ready,
        "running": health.running,
        "problems": health.problems,
    }
