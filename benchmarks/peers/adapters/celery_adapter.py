"""Celery with its Redis transport and the gevent pool."""
# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false, reportUnknownMemberType=false

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

if sys.argv[2] in {"work", "idle"}:
    from gevent import monkey

    monkey.patch_all()

from celery import Celery

from benchmarks.peers.harness import CALLERS, CONCURRENCY, payload


class CeleryAdapter:
    """Concurrent callers are threads, because `apply_async` blocks. Celery runs no coroutines."""

    def __init__(self, url: str, note: Callable[[int], None]) -> None:
        self._app = Celery("jobs", broker=url, set_as_current=False)
        self._app.conf.update(task_ignore_result=True, worker_redirect_stdouts=False)
        self._threads = ThreadPoolExecutor(CALLERS)

        @self._app.task(name="handle")
        def handle(n: int, to: str, subject: str) -> None:
            note(n)

        self._handle = handle

    async def open(self) -> None:
        """Do nothing: the app connects with its first call."""

    async def add(self, number: int) -> None:
        self._add(number)

    async def add_from_caller(self, number: int) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, self._add, number)

    def _add(self, number: int) -> None:
        self._handle.apply_async(kwargs=payload(number))

    def work_blocking(self) -> None:
        options = ["--pool", "gevent", "--concurrency", str(CONCURRENCY), "--loglevel", "WARNING"]
        self._app.worker_main(["worker", "--without-gossip", "--without-mingle", *options])

    async def work(self) -> None:
        raise RuntimeError("the worker of Celery is no coroutine")


ADAPTER = CeleryAdapter
