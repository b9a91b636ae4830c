"""Completion on a public object shows only names that a user may use, and each of them is documented."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from glidemq_async import Job
from glidemq_async.client.queue_client import DEFAULT_PREFIX, QueueClient
from glidemq_async.functions.callers import AddRequest
from glidemq_async.jobs.snapshot import job_of_add

JOB = """
    abort attempts_made change_delay change_priority created_at data data_size dead_letter due_at failed_reason
    failure_cause fence finished_at get_state gone headers heartbeat id key lifo log name options outcome priority
    processed_at progress promote queue refresh remove result retry return_value revoke stacktrace stalled_count state
    sync update_data update_progress update_result_ttl waited
"""


def job() -> Job[Any, Any]:
    client = QueueClient("q", "memory://", prefix=DEFAULT_PREFIX, mode=None)
    return job_of_add(client, AddRequest("", "n", b"\xc0", b"", b""), "1", 1)


PUBLIC: dict[type, tuple[Callable[[], object], str]] = {
    Job: (job, JOB),
}

INTERNAL_WORDS = ("Used by", "For workers", "For tests", "For tasks", "For queues", "For executors")


def shown(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_completion_shows_the_public_names(kind: type) -> None:
    make, names = PUBLIC[kind]
    assert shown(kind) <= set(names.split())
    assert shown(make()) == set(names.split())


@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_every_name_is_documented_for_users(kind: type) -> None:
    undocumented: list[str] = []
    for name in sorted(shown(kind)):
        text = inspect.getdoc(inspect.getattr_static(kind, name)) or ""
        if not text or any(word in text for word in INTERNAL_WORDS):
            undocumented.append(name)
    assert undocumented == []
