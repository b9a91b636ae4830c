"""A worker process without a supervisor: SIGHUP starts the program anew in its place."""

from __future__ import annotations

import os
import sys

from glidemq_async.cli.worker.process import Process
from glidemq_async.cli.worker.settings import Settings


def run_alone(settings: Settings) -> int:
    """Run to the end and return the exit code; does not return after SIGHUP."""
    process = Process(settings)
    code = process.run()
    if process.restart and code == 0:
        sys.stdout.flush()
        sys.stderr.flush()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the very command line we run
    return code
