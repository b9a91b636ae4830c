"""The program of a worker process of the demonstration. It runs one Worker until its standard input ends.

The settings arrive as one JSON line on standard input, because other users can read a command line and a URL may
contain a password. The pipe closes when the parent ends for any reason, so no worker outlives its parent.
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
"""The line that reports the first claimed job."""


class Settings(TypedDict):
    """The settings of a worker process. `lock_duration` is in seconds."""

    url: str
    queue: str
    name: str
    concurrency: int
    lock_duration: float


async def serve(settings: Settings) -> None:
    """Run jobs until standard input ends or SIGTERM arrives."""
    worker = Worker[SourceFile, Measure](
        settings["queue"],
        process,
        settings["url"],
        concurrency=settings["concurrency"],
        lock_duration=settings["lock_duration"],
        shutdown_timeout=SHUTDOWN_SECONDS,
        name=settings["name"],
    )
    worker.on("active", _report_first_job())
    await run_until_stdin_ends(worker)


def _report_first_job() -> Callable[[Job[SourceFile, Measure]], None]:
    is_reported = False

    def report(_job: Job[SourceFile, Measure]) -> None:
        nonlocal is_reported
        if not is_reported:
            is_reported = True
            sys.stdout.write(f"{WORKING}\n")
            sys.stdout.flush()

    return report


def main() -> None:
    """Read the settings and run the worker."""
    # The parser warns about old source files, for example about invalid escape sequences.
    warnings.simplefilter("ignore")
    settings: Settings = json.loads(sys.stdin.readline())
    run_in_loop(serve(settings))


if __name__ == "__main__":
    main()
