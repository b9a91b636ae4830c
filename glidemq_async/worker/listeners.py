"""What a worker tells its own process: listeners by event name. The queue's stored events are another thing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias, cast, get_args

WorkerEvent: TypeAlias = Literal[
    "active",
    "completed",
    "failed",
    "retrying",
    "returned",
    "lease_lost",
    "stalled",
    "drained",
    "error",
    "closing",
    "closed",
]
Listener: TypeAlias = Callable[..., object]
EVENTS: Final[frozenset[str]] = frozenset(get_args(WorkerEvent))

_log = logging.getLogger(__name__)


class Listeners:
    """The functions that want to hear of a worker's events, plain or coroutine functions."""

    def __init__(self) -> None:
        self._by_event: dict[str, list[Listener]] = {}
        self._tasks: set[asyncio.Future[object]] = set()

    def add(self, event: str, listener: Listener) -> None:
        """Register a listener. Raises ValueError for an unknown event."""
        if event not in EVENTS:
            raise ValueError(f"unknown worker event {event!r}; the known ones are {', '.join(sorted(EVENTS))}")
        self._by_event.setdefault(event, []).append(listener)

    def wants(self, event: WorkerEvent) -> bool:
        """Return whether anybody listens to an event."""
        return event in self._by_event

    def tell(self, event: WorkerEvent, *details: object) -> None:
        """Call every listener of an event; what one raises is logged and stops nobody."""
        for listener in self._by_event.get(event, ()):
            try:
                answer = listener(*details)
            except Exception:  # noqa: BLE001 - a listener must not stop the worker
                _log.exception("listener of worker event %r raised", event)
                continue
            if asyncio.iscoroutine(answer):
                task = asyncio.ensure_future(cast("Awaitable[object]", answer))
                self._tasks.add(task)
                task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("listener of a worker event raised", exc_info=error)
