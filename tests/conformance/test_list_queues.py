"""Listing the queues of a storage from Python."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import Queue, StorageUnavailable, list_queues
from glidemq_async.storage import Storage
from tests.support.helpers import AnyQueue
from tests.support.stores import RunningStore

PREFIX = "listed*-prefix"


@pytest.mark.everywhere
async def test_the_queues_of_a_prefix_are_listed(queue: AnyQueue, storage: Storage, store: RunningStore) -> None:
    """On a cluster their slots belong to several primaries."""
    names = [f"q{number}[a]" for number in range(8)]
    other = Queue[Any, Any]("q0", storage, prefix="listedXYZ-prefix")  # which the pattern must not match
    opened = [Queue[Any, Any](name, storage, prefix=PREFIX) for name in names]
    assert await list_queues(storage, prefix=PREFIX) == []
    for each in (queue, other, *opened):
        await each.connect()
    await opened[0].add("n", job_id="an id of free text}:meta")  # its record's key ends like the key of a queue
    assert await list_queues(storage, prefix=PREFIX) == names
    assert await list_queues(store.url, prefix=PREFIX) == names
    assert queue.name in await list_queues(storage)
    assert await opened[3].is_paused() is False  # the storage that was passed is open
    for each in (other, *opened):
        await each.obliterate()
    assert await list_queues(storage, prefix=PREFIX) == []


def test_listing_does_not_create_a_missing_directory(tmp_path: Path) -> None:
    assert asyncio.run(list_queues(f"file://{tmp_path}/none")) == []
    assert list(tmp_path.iterdir()) == []


async def test_a_target_that_cannot_be_listed_is_refused() -> None:
    with pytest.raises(StorageUnavailable, match="cannot reach"):
        await list_queues("redis://127.0.0.1:1?timeout=0.1")
    with pytest.raises(ValueError, match="prefix"):
        await list_queues("memory://", prefix="a:b")
