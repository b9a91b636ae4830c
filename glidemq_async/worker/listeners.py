"""Listeners for the events of a worker in its own process. The stored events of a queue are in queues/events.py."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias, cast, get_args

from glidemq_async._internal.task_scope import TaskScope

WorkerEvent: TypeAlias = Literal[
    "active",
    "completed",
    "failed",
    "retrying",
    "returned",
    "lease_lost",
    "stalled",
    "drained",
    "disconnected",
    "reconnected",
    "error",
    "closing",
    "closed",
]
Listener: TypeAlias = Callable[..., object]
EVENTS: Final[frozenset[str]] = frozenset(get_args(WorkerEvent))

_log = logging.getLogger(__name__)


class Listeners:
    """The listeners of a worker by event: plain or coroutine functions."""

    def __init__(self, tasks: TaskScope) -> None:
        self._by_event: dict[str, list[Listener]] = {}
        self._tasks = tasks

    def add(self, event: str, listener: Listener) -> None:
        """Register a listener. Raises ValueError for an unknown event."""
        if event not in EVENTS:
            raise ValueError(f"unknown worker event {event!r}; the known ones are {', '.join(sorted(EVENTS))}")
        self._by_event.setdefault(event, []).append(listener)

    def wants(self, event: WorkerEvent) -> bool:
        """Return whether an event has a listener."""
        return event in self._by_event

    def notify(self, event: WorkerEvent, *details: object) -> None:
        """Call every listener of an event. An exception from a listener is logged and has no other effect."""
        # Listeners run between two steps of the worker, in the middle of a reply. A coroutine function therefore gets a
        # task, and the worker does not wait for it.
        for listener in self._by_event.get(event, ()):
            try:
                answer = listener(*details)
            except Exception:  # noqa: BLE001 - a listener must not stop the worker
                _log.exception("a listener of the worker event %r raised an exception", event)
                continue
            if asyncio.iscoroutine(answer):
                self._tasks.start(_listen(event, cast("Awaitable[object]", answer)))


async def _listen(event: WorkerEvent, answer: Awaitable[object]) -> None:
    try:
        await answer
    except Exception:  # noqa: BLE001 - a listener must not stop the worker
        _log.exception("a listener of the worker event %r raised an exception", event)
