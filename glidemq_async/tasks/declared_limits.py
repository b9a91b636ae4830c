"""The settings that an app declares: limits and rules of events of its queues, and limits of ordering keys."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from glidemq_async.queues.declared_limits import key_declaration, queue_declaration
from glidemq_async.queues.event_rules import EventRules, event_declaration
from glidemq_async.queues.limits import QueueLimits

LIMITS: Final = ("concurrency", "rate_limit", "token_bucket")
"""The options of tasks that limit the jobs of each ordering key."""
EVERY_KEY: Final = ""
"""Stands for the default of all keys."""

_log = logging.getLogger(__name__)


class TaskLimits(NamedTuple):
    """The limits that a task declares: in stored form by name, and the ordering key that they apply to."""

    key: str
    stored: Mapping[str, str]


class DeclaredLimits:
    """The limits that an app declares, by queue. Its workers store them when they start."""

    def __init__(self) -> None:
        self._queues: dict[str, QueueLimits] = {}
        self._events: dict[str, EventRules] = {}
        self._of_keys: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
        """By queue and setting: the value, and the task that declares it."""

    def add_queue(self, queue: str, limits: QueueLimits) -> None:
        """Declare the limits of a queue. Raises TypeError, and ValueError if the app declares other ones."""
        if not isinstance(limits, QueueLimits):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"limits must be QueueLimits, not {limits!r}")
        if (known := self._queues.setdefault(queue, limits)) != limits:
            raise ValueError(
                f"this app declares two different limits of queue {queue!r}: {known} and {limits}; "
                "declare them in one place, and call mq.queue() without limits= in the others"
            )

    def add_events(self, queue: str, rules: EventRules) -> None:
        """Declare the rules of a queue's events. Raises TypeError, and ValueError if the app declares other ones."""
        if not isinstance(rules, EventRules):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"events must be EventRules, not {rules!r}")
        if (known := self._events.setdefault(queue, rules)) != rules:
            raise ValueError(
                f"this app declares two different rules of events of queue {queue!r}: {known} and {rules}; "
                "declare them in one place, and call mq.queue() without events= in the others"
            )

    def check_task(self, task: str, queue: str, limits: TaskLimits) -> None:
        """Raise ValueError if another task of the queue declares another limit for the same key."""
        for setting, value in _settings(limits):
            known, other = self._of_keys[queue].get(setting, (value, task))
            if known != value:
                name = setting.partition(" ")[0]
                of = f"key {limits.key!r}" if limits.key else "each key"
                raise ValueError(
                    f"tasks {other!r} and {task!r} declare different limits ({name}) for {of} of queue {queue!r}, and "
                    "a limit applies to all jobs of a key; give both tasks the same limit, or give one of them "
                    "another queue="
                )

    def add_task(self, task: str, queue: str, limits: TaskLimits) -> None:
        """Declare the limits of a task that `check_task` has accepted."""
        self._of_keys[queue].update({setting: (value, task) for setting, value in _settings(limits)})

    def of(self, queue: str) -> dict[str, str]:
        """Return the declared settings of a queue in stored form."""
        of_keys = {setting: value for setting, (value, _) in self._of_keys[queue].items()}
        events = event_declaration(self._events.get(queue, EventRules()))
        return {**queue_declaration(self._queues.get(queue, QueueLimits())), **events, **of_keys}

    def warn_of_unserved(self, queues: Collection[str]) -> None:
        """Log the declarations that no worker stores, because the app has no tasks of their queues."""
        for queue in sorted((self._queues.keys() | self._events.keys()) - set(queues)):
            near = get_close_matches(queue, queues, 1)
            _log.warning(
                "the settings of queue %r are not stored: no task of this app belongs to the queue%s",
                queue,
                f"; did you mean {near[0]!r}?" if near else "",
            )


def limits_of_task(task: str, queue: str, given: Mapping[str, Any], key: str | None) -> TaskLimits:
    """Return the limits among the options of a task.

    `key` is the key that they apply to, EVERY_KEY for all keys, None for a task whose jobs have no key. Raises
    TypeError or ValueError for bad limits, and for limits without a key.
    """
    stored = key_declaration(given.get("concurrency"), given.get("rate_limit"), given.get("token_bucket"))
    if stored and key is None:
        raise ValueError(_without_key(task, queue, given))
    return TaskLimits(key or EVERY_KEY, stored)


def _without_key(task: str, queue: str, given: Mapping[str, Any]) -> str:
    name = next(name for name in LIMITS if given.get(name) is not None)
    remedy = f"add key={task!r} to limit all of them, or key=lambda ...: ... for a key of each tenant"
    if name != "token_bucket":
        remedy += f", or limit the queue with mq.queue({queue!r}, limits=QueueLimits(...))"
    return (
        f"task {task!r}: {name}= limits the jobs of each ordering key, but the jobs of this task have no key; {remedy}"
    )


def _settings(limits: TaskLimits) -> list[tuple[str, str]]:
    return [(f"{name} {limits.key}", value) for name, value in limits.stored.items()]
