"""A worker process without a supervisor. SIGHUP replaces the program in the same process."""

from __future__ import annotations

import os
import sys

from glidemq_async.cli.worker.process import WorkerRun
from glidemq_async.cli.worker.settings import WorkerSettings


def run_alone(settings: WorkerSettings) -> int:
    """Run until the worker ends, and return the exit code. Does not return after SIGHUP."""
    process = WorkerRun(settings)
    code = process.run()
    if process.restart and code == 0:
        sys.stdout.flush()
        sys.stderr.flush()
        # The same process id, so a service manager sees no restart. The new program imports the changed code. Python
        # opens its descriptors so that they close here, and the worker has already ended.
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own command line
    return code
