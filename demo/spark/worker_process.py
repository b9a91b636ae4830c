"""The program of a worker process of the demonstration. It runs one Worker until its standard input ends."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Final, TypedDict

from glidemq_async import Job, Worker
from glidemq_async.cli.loops import run_in_loop, run_until_stdin_ends
from glidemq_async.demo.spark.files import QUEUE, File, hash_file

LOCK_SECONDS: Final = 3.0


class Settings(TypedDict):
    """The settings of a worker process, which arrive as one JSON line on standard input."""

    url: str
    name: str
    concurrency: int


async def process(job: Job[File, str]) -> str:
    """Hash a file in a thread, so that a large file does not delay other jobs."""
    return await asyncio.to_thread(hash_file, job.data, job.attempts_made)


async def serve(settings: Settings) -> None:
    """Run jobs until standard input ends or SIGTERM arrives."""
    worker = Worker[File, str](
        QUEUE,
        process,
        settings["url"],
        concurrency=settings["concurrency"],
        lock_duration=LOCK_SECONDS,
        name=settings["name"],
    )
    await run_until_stdin_ends(worker)


def main() -> None:
    """Read the settings and run the worker."""
    # Otherwise the traceback of every failure on purpose would be logged.
    logging.disable(logging.CRITICAL)
    settings: Settings = json.loads(sys.stdin.readline())
    run_in_loop(serve(settings))


if __name__ == "__main__":
    main()
