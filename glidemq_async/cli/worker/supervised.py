"""Several worker processes: the supervisor and its event loop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from glidemq_async.cli.exits import CommandError
from glidemq_async.cli.loops import run_in_loop
from glidemq_async.cli.worker.logs import say_error, set_up_logging
from glidemq_async.cli.worker.reloading import watch
from glidemq_async.cli.worker.settings import WorkerSettings
from glidemq_async.cli.worker.supervisor import Supervisor


def run_supervised(settings: WorkerSettings, count: int, most_restarts: int, watched: Sequence[Path]) -> int:
    """Run until the end, and return the exit code. An error that a user can fix is one line on standard error."""
    set_up_logging(settings.log_level, settings.log_format)

    async def supervise() -> int:
        changes = watch(watched) if watched else None
        return await Supervisor(settings, count, most_restarts=most_restarts, changes=changes).run()

    # The children do the work, and the standard loop starts faster than uvloop.
    try:
        return run_in_loop(supervise(), "asyncio")
    except CommandError as error:
        say_error(error, settings.log_format)
        return error.code
