"""What a worker process of the demonstration runs: one async Worker, until its standard input ends."""

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
    """What a worker process is told, as one JSON line on its standard input."""

    url: str
    name: str
    concurrency: int


async def process(job: Job[File, str]) -> str:
    """Hash a file; large ones must not keep the others waiting."""
    return await asyncio.to_thread(hash_file, job.data, job.attempts_made)


async def serve(settings: Settings) -> None:
    """Work until standard input ends, or SIGTERM."""
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
    """Read the settings and serve."""
    # Every job that fails on purpose would be told with its traceback.
    logging.disable(logging.CRITICAL)
    settings: Settings = json.loads(sys.stdin.readline())
    run_in_loop(serve(settings))


if __name__ == "__main__":
    main()
