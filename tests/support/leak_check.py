"""Checks after every test: sound stored data, no foreign store key, and no task, thread or socket left behind."""

from __future__ import annotations

import asyncio
import gc
import re
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, cast

from glidemq_async import Queue
from glidemq_async.storage import Storage
from glidemq_async.topics.topic import Topic
from tests.support.stores import RunningStore

_KEY = re.compile(r"([^:{}]+):\{([^:{}]+)\}:(.+)")
OF_TOPICS = {"topic", "topic_info", "subscriptions", "call"}
_SOCKETS = Path("/proc/self/fd")
PATIENCE = 10.0
OF_LOOPS = "asyncio_"
"""Threads of `asyncio.to_thread`. They end with their loop, and the loop of blocking calls never ends."""


async def verify(storage: Storage, store: RunningStore, *, workers_gone: bool = True) -> None:
    """Check every queue of a store; raise an AssertionError with all findings."""
    wrong: list[str] = []
    queues: dict[tuple[str, str], list[str]] = {}
    for key in await store.keys():
        found = _KEY.fullmatch(key)
        if found is None:
            wrong.append(f"{key}: belongs to no queue")
        else:
            queues.setdefault((found[1], found[2]), []).append(found[3])
    for (prefix, name), kinds in queues.items():
        if name.startswith("topic/"):
            wrong += [f"{name}: {finding}" for finding in await Topic(name[6:], storage, prefix=prefix).check()]
            wrong += [f"{name}: foreign key {kind}" for kind in kinds if kind.partition(":")[0] not in OF_TOPICS]
            continue
        async with Queue[Any, Any](name, storage, prefix=prefix) as queue:
            wrong += [f"{prefix}:{name}: {finding}" for finding in await queue.check()]
        wrong += await _traces(store, f"{prefix}:{{{name}}}", kinds, workers_gone)
    assert not wrong, "\n".join(wrong)


async def _traces(store: RunningStore, base: str, kinds: list[str], workers_gone: bool) -> list[str]:
    """Find data that workers and waiters should have removed when they left."""
    wrong: list[str] = []
    if workers_gone:
        wrong += [f"{base}:{kind}: a closed worker left it" for kind in ("idle", "alive", "workers") if kind in kinds]
    calls = [f"{base}:{kind}" for kind in kinds if kind.startswith("call:")]
    wrong += [f"{key}: never expires" for key, left in (await store.lifetimes(calls)).items() if left == -1]
    if "waiters" in kinds:
        ids = await store.ask("HKEYS", f"{base}:waiters")
        assert isinstance(ids, list)
        waited = [job_id.decode() for job_id in cast("list[bytes]", ids)]
        wrong += [f"{base}:waiters: {job_id} has a waiter, but no client waits" for job_id in waited]
    return wrong


async def tasks_left(patience: float = PATIENCE) -> list[str]:
    """Return the tasks of this loop that do not end by themselves soon."""
    me = asyncio.current_task()
    others = {task for task in asyncio.all_tasks() if task is not me}
    if others:
        _, others = await asyncio.wait(others, timeout=patience)
    return [repr(task) for task in others]


class Resources(NamedTuple):
    """The threads and sockets of this process."""

    threads: frozenset[threading.Thread]
    sockets: frozenset[str]


def held() -> Resources:
    """Return the present threads and sockets."""
    threads = frozenset(thread for thread in threading.enumerate() if not thread.name.startswith(OF_LOOPS))
    return Resources(threads, frozenset(_sockets()))


def _sockets() -> set[str]:
    found: set[str] = set()
    if _SOCKETS.is_dir():
        for link in _SOCKETS.iterdir():
            with suppress(OSError):
                found.add(str(link.readlink()))
    return {target for target in found if target.startswith("socket:")}


@contextmanager
def late_errors() -> Generator[list[str]]:
    """Collect the errors of objects that the garbage collector discards in this block, and of threads.

    For example a coroutine that was never awaited, and a socket that was never closed.
    """
    found: list[str] = []

    def note_object(error: sys.UnraisableHookArgs, /) -> None:
        found.append(f"{error.err_msg or 'an error in'} {error.object!r}: {error.exc_value!r}")

    def note_thread(error: threading.ExceptHookArgs, /) -> None:
        found.append(f"an error in {error.thread!r}: {error.exc_value!r}")

    hooks = sys.unraisablehook, threading.excepthook
    sys.unraisablehook, threading.excepthook = note_object, note_thread
    try:
        yield found
    finally:
        sys.unraisablehook, threading.excepthook = hooks


def left_since(before: Resources) -> list[str]:
    """Return new threads and sockets that do not end soon."""
    deadline = time.monotonic() + PATIENCE
    while True:
        now = held()
        threads = [thread.name for thread in now.threads - before.threads if thread.is_alive()]
        sockets = sorted(now.sockets - before.sockets)
        if not threads and not sockets:
            return []
        if time.monotonic() > deadline:
            return [*(f"thread {name}" for name in threads), *sockets]
        gc.collect()
        time.sleep(0.02)
