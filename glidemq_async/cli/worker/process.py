"""One worker process: it loads the app, runs it until a signal, and returns the exit code."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import cast

from glidemq_async._internal.http_endpoint import PortError
from glidemq_async.cli.apps import Runnable, load, runnable_of
from glidemq_async.cli.exits import FAILED, RELEASED, CommandError, code_of
from glidemq_async.cli.loops import run_in_loop
from glidemq_async.cli.memory_stores import refuse_memory_store
from glidemq_async.cli.server_checks import wait_for_server
from glidemq_async.cli.worker.hangup import listen_to_hangup
from glidemq_async.cli.worker.logs import say_error, set_up_logging
from glidemq_async.cli.worker.settings import WorkerSettings
from glidemq_async.errors import GlideMQError
from glidemq_async.worker.signals import stop_on_signals

_log = logging.getLogger("glidemq_async.cli")


class WorkerRun:
    """The worker of this process and its shutdown. `ready` is called when it claims jobs."""

    def __init__(self, settings: WorkerSettings, ready: Callable[[], None] = lambda: None) -> None:
        self._settings = settings
        self._ready = ready
        self._starting: asyncio.Timeout | None = None
        self._running: Runnable | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = self._released = False
        self.restart = False
        """True if SIGHUP requested a new process."""

    def run(self) -> int:
        """Run until the end. An error that a user can fix is reported in one line on standard error."""
        settings = self._settings
        try:
            found = load(settings.app, Path(settings.directory))
            set_up_logging(settings.log_level, settings.log_format, settings.number)
            run_in_loop(self._work(found), settings.loop)
        except (CommandError, GlideMQError) as error:
            self._say(error)
            return code_of(error)
        except OSError as error:
            if not isinstance(error, PortError) and error.errno != errno.EADDRINUSE:
                _log.exception("the worker ended with an error")
            self._say(error)
            return FAILED
        except Exception:  # noqa: BLE001 - the app may raise anything, and its author needs the traceback
            _log.exception("the worker ended with an error")
            return FAILED
        return RELEASED if self._released else 0

    def _say(self, error: Exception) -> None:
        say_error(error, self._settings.log_format, self._settings.number)

    async def _work(self, found: object) -> None:
        settings = self._settings
        self._loop = asyncio.get_running_loop()
        with stop_on_signals(self._stop_asked, self.release_jobs):
            listen_to_hangup(self._restart_asked, self._stop_asked)
            async with AsyncExitStack() as opened:
                running = await self._start(found, opened)
                if running is not None:
                    self._ready()
                    await running.run(until_empty=settings.until_empty)

    async def _start(self, found: object, opened: AsyncExitStack) -> Runnable | None:
        """Create the worker and start it. Return None if a stop was requested during the start, which may hang."""
        # A start may wait for a server or a lifespan for ever, so a signal must be able to end it. Therefore it has a
        # timeout without a time, which `_give_up_start` reschedules to now. That ends only the start, and the exit
        # stack in `_work` closes everything that has been opened so far.
        settings, starting = self._settings, asyncio.timeout(None)
        try:
            async with starting:
                self._starting = starting
                running = await runnable_of(settings.app, found, queues=settings.queues, **settings.options)
                _refuse_separate_stores(running, settings.processes)
                # Before the lifespan of the app, which may use the server too.
                for storage in _storages_of(running):
                    await wait_for_server(storage, settings.server_timeout)
                await opened.enter_async_context(running)
        except TimeoutError:
            # A TimeoutError of the app itself, which has nothing to do with a stop.
            if not starting.expired():
                raise
            return None
        finally:
            self._starting = None
        self._running = running
        # The start may end in the turn of the loop in which a stop is requested, before its timeout can end it.
        return None if self._stopping else running

    def _restart_asked(self) -> None:
        if not self._stopping:
            self.restart = True
            self._log_request("restarting", "SIGHUP: waiting for running jobs, then restarting this process")
        self.stop()

    def _stop_asked(self) -> None:
        if not self._stopping or self.restart:  # a stop overrides a restart
            self.restart = False
            self._log_request("stopping", "stopping: waiting for running jobs; a second signal releases them")
        self.stop()

    def _log_request(self, event: str, text: str) -> None:
        if self._settings.number is None:  # a supervisor logs it once for all processes
            _log.info(text, extra={"event": event})

    def stop(self) -> None:
        """Stop after the running jobs."""
        self._stopping = True
        self._give_up_start()
        if self._running is not None:
            self._running.stop()

    def release_jobs(self) -> None:
        """Release the running jobs and stop."""
        self._stopping = self._released = True
        self._give_up_start()
        if self._running is not None:
            self._running.stop(immediately=True)

    def _give_up_start(self) -> None:
        if self._starting is not None:
            self._starting.reschedule(asyncio.get_running_loop().time())
            self._starting = None

    def release_jobs_from_thread(self) -> bool:
        """Call `release_jobs` from another thread. Return False if nothing runs yet."""
        if self._loop is None:
            return False
        with suppress(RuntimeError):  # the loop has ended, and the process is about to end
            self._loop.call_soon_threadsafe(self.release_jobs)
        return True


def run_process(settings: WorkerSettings) -> int:
    """Run a worker without a supervisor, and return the exit code. Does not return after SIGHUP."""
    process = WorkerRun(settings)
    code = process.run()
    if process.restart and code == 0:
        sys.stdout.flush()
        sys.stderr.flush()
        # The same process id, so a service manager sees no restart. The new program imports the changed code. Python
        # opens its descriptors so that they close here, and the worker has already ended.
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - our own command line
    return code


def _refuse_separate_stores(running: Runnable, processes: int) -> None:
    """Raise CommandError if each of several processes would have a separate store."""
    if processes > 1:
        for storage in _storages_of(running):
            refuse_memory_store(storage, f"and each of {processes} would have a separate store")


def _storages_of(running: Runnable) -> list[object]:
    """Return the storages of its workers, each one once."""
    workers = cast("Iterable[object]", getattr(running, "workers", [running]))
    found = [getattr(worker, "storage", None) for worker in workers]
    return list({id(storage): storage for storage in found if storage is not None}.values())
