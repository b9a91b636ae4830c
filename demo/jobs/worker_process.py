"""What a worker process of the demonstration runs: one Worker, until its standard input ends.

Its settings come as one JSON line on standard input (a URL may hold a password, which a command line would show).
The pipe ends however the parent ends, so no worker outlives it.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Final, TypedDict

from glidemq_async import Job, Worker
from glidemq_async.cli.loops import run_in_loop, run_until_stdin_ends
from glidemq_async.demo.jobs.measure import Measure, SourceFile, process

SHUTDOWN_SECONDS: Final = 5.0
WORKING: Final = "working"
"""The line that says that the first job has been claimed."""


class Settings(TypedDict):
    """What a worker process is told; `lock_duration` is in seconds."""

    url: str
    queue: str
    name: str
    concurrency: int
    lock_duration: float


async def serve(settings: Settings) -> None:
    """Work until standard input ends, or SIGTERM."""
    worker = Worker[SourceFile, Measure](
        settings["queue"],
        process,
        settings["url"],
        concurrency=settings["concurrency"],
        lock_duration=settings["lock_duration"],
        shutdown_timeout=SHUTDOWN_SECONDS,
        name=settings["name"],
    )
    worker.on("active", _tell_once())
    await run_until_stdin_ends(worker)


def _tell_once() -> Callable[[Job[SourceFile, Measure]], None]:
    told = False

    def tell(_job: Job[SourceFile, Measure]) -> None:
        nonlocal told
        if not told:
            told = True
            sys.stdout.write(f"{WORKING}\n")
            sys.stdout.flush()

    return tell


def main() -> None:
    """Read the settings and serve."""
    # Old sources are full of what a newer parser warns about.
    warnings.simplefilter("ignore")
    settings: Settings = json.loads(sys.stdin.readline())
    run_in_loop(serve(settings))


if __name__ == "__main__":
    main()
