"""A child process: receives one job after another over its channel and runs each in its main thread.

A second thread reads the channel, so that the child notices an abort and the worker's end while a handler runs.
"""

# The main thread runs jobs, because Python delivers signals only there, and SIGTERM must be able to interrupt a plain
# function. The reading thread must therefore never run code of the user. Three interleavings need care:
#
# 1. An abort may arrive while the main thread turns a coroutine function into a task. `_abort` sets `_stop_requested`
#    before it looks for the task, and `_finish` looks at `_stop_requested` after it has stored the task. So at least
#    one of the two sees the other, and the task is cancelled.
# 2. An abort may arrive after the run that it was meant for. It carries the id of its job, and `_abort` ignores it if
#    another job runs or none. The worker in turn drops frames with the number of another run.
# 3. The worker may die while a handler computes. Only the reading thread can notice that. It kills the process group,
#    because the main thread may never return to Python code that could end the process.
#
# "begun" is sent before anything of the job is touched. A process that dies before this frame cannot have started the
# job, so another process may run it without counting an attempt. After the frame, a death counts against the job.

from __future__ import annotations

import asyncio
import contextvars
import gc
import importlib
import inspect
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final, cast

from glidemq_async._internal.forgotten_calls import call_plainly
from glidemq_async.client.queue_client import QueueClient
from glidemq_async.errors import ExecutorError
from glidemq_async.executors.calls import FunctionCall
from glidemq_async.executors.permissions import Permissions
from glidemq_async.executors.subprocess.forwarding import Forwarding
from glidemq_async.executors.subprocess.frames import PROTOCOL, Frame
from glidemq_async.executors.subprocess.link import WorkerSocket
from glidemq_async.executors.subprocess.proxy import ChildClient, ChildJob
from glidemq_async.executors.subprocess.references import MainModule, read_main, resolve
from glidemq_async.executors.subprocess.remote_errors import error_to_values
from glidemq_async.executors.subprocess.system import memory_in_use
from glidemq_async.executors.subprocess.tracing import Trace, adopt_trace, flush_spans
from glidemq_async.jobs.abort import set_abort
from glidemq_async.jobs.context import set_current_job
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import job_of_values
from glidemq_async.payloads.serialization import MsgpackSerializer
from glidemq_async.storage.urls import disable_default

CHANNEL: Final = 3
"""The descriptor of the channel, the only one besides stdin, stdout and stderr."""
ENDED: Final = 0
STOPPED: Final = 143
UNPREPARED: Final = 78
"""Exit statuses: ended on request, ended by SIGTERM (128 + 15), or unable to run jobs (`EX_CONFIG`)."""
PREPARING: Final = 60
"""Seconds of processor time for imports and set-up when the processor time of jobs is limited."""


def main(config: Mapping[str, Any]) -> None:
    """Run as a child until the worker ends it. Does not return."""
    link = WorkerSocket(socket.socket(fileno=CHANNEL))
    os.set_inheritable(CHANNEL, False)
    _exit(JobProcess(link, config).live())


class JobProcess:
    """One process that runs jobs, one at a time."""

    def __init__(self, link: WorkerSocket, config: Mapping[str, Any]) -> None:
        self._link = link
        self._config = config
        self._pid = os.getpid()
        self._inbox: SimpleQueue[Frame | None] = SimpleQueue()
        self._functions: dict[str, Callable[..., Any]] = {}
        self._runner: asyncio.Runner | None = None
        self._job: Job[Any, Any] | None = None
        self._client: ChildClient | None = None
        self._task: asyncio.Task[Any] | None = None
        self._stop_requested = False
        self._begin_job: Callable[[], None] = lambda: None
        self._is_worn: Callable[[], bool] = lambda: False
        self._denied: Callable[[BaseException], BaseException] = lambda error: error
        self._logs = None if config["levels"] is None else Forwarding(link, config["levels"])

    def live(self) -> int:
        """Prepare, report that the child is ready, and run jobs. Return the exit status."""
        try:
            lacking = self._prepare()
            signal.signal(signal.SIGTERM, self._on_term)
            threading.Thread(target=self._read, name="glidemq-channel", daemon=True).start()
        except BaseException as error:  # noqa: BLE001 - the worker gets any error, and this process ends
            with suppress(OSError):
                self._link.send("unprepared", error_to_values(self._denied(error)))
            return UNPREPARED
        self._link.send("ready", PROTOCOL, os.getpid(), lacking)
        while (frame := self._inbox.get()) is not None:
            self._run(frame)
        if self._runner is not None:
            self._runner.close()
        flush_spans()
        return ENDED

    def _prepare(self) -> list[str]:
        # The order is a rule. The permissions are applied before anything of the user is imported, because an import
        # runs code. The thread that reads starts after that, because the kernel confines only the calling thread and
        # its later threads. Each import may set up logging, so `_take_over_logging` follows each of them. `gc.freeze`
        # comes last: it exempts everything that exists now from collections.
        lacking = self._apply_permissions()
        if self._config["storage_disabled"]:
            disable_default()
        self._take_over_logging()
        self._import_functions()
        gc.freeze()
        return lacking

    def _apply_permissions(self) -> list[str]:
        """Enter the sandbox if this child has one. Return the permissions that could not be enforced."""
        if self._config["permissions"] is None:
            return []
        # Imported only if needed: children without permissions start without the sandbox.
        sandbox = importlib.import_module("glidemq_async.executors.sandbox")
        allowed = Permissions(**self._config["permissions"])
        lacking: list[str] = sandbox.apply(allowed, channels=[self._link.descriptor], threads=1, preparing=PREPARING)
        self._begin_job = lambda: sandbox.begin_job(allowed)
        self._is_worn = lambda: sandbox.is_worn(allowed)
        self._denied = lambda error: sandbox.denied(error, allowed) or error
        return lacking

    def _import_functions(self) -> None:
        """Run the user's code: the main module, the set-up function, and the modules of the handlers."""
        read_main(MainModule(*self._config["main"]))
        if self._config["setup"]:
            setup = resolve(self._config["setup"])
            self._take_over_logging()
            self._finish(setup())
            self._take_over_logging()
        for reference in self._config["handlers"]:
            self._functions[reference] = resolve(reference)
        self._take_over_logging()

    def _take_over_logging(self) -> None:
        if self._logs is not None:
            self._logs.take_over()

    # -- frames from the worker; in the thread that reads -------------------------------------------------------------

    def _read(self) -> None:
        for frame in self._link.frames():
            if frame[0] == "stop":
                self._inbox.put(None)
                return
            self._receive(frame)
        # The worker is gone, so the result of this run has no receiver. The process group belongs to this process.
        with suppress(OSError):
            os.killpg(0, signal.SIGKILL)
        os._exit(STOPPED)

    def _receive(self, frame: Frame) -> None:
        if frame[0] == "answer":
            if self._client is not None:
                self._client.functions.updates.answered(frame)
        elif frame[0] == "abort":
            self._abort(frame)
        elif frame[0] == "levels":
            if self._logs is not None:
                self._logs.follow(frame[1])
        else:
            self._inbox.put(frame)

    def _abort(self, frame: Frame) -> None:
        _, job_id, reason = frame
        job = self._job
        if job is None or job.id != job_id:
            return
        self._stop_requested = True
        task = self._task
        if task is None:
            set_abort(job.abort, reason)
            return
        with suppress(RuntimeError):  # it has just ended
            task.get_loop().call_soon_threadsafe(self._abort_task, job, task, reason)

    def _abort_task(self, job: Job[Any, Any], task: asyncio.Task[Any], reason: str) -> None:
        set_abort(job.abort, reason)
        task.cancel(reason)

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        # Service managers send SIGTERM to all processes of a service. Only the worker decides which runs stop.
        if self._stop_requested:
            raise SystemExit(STOPPED)

    # -- one job ----------------------------------------------------------------------------------------------------

    def _run(self, frame: Frame) -> None:
        _, number, reference, queue, limit, values, call, trace = frame
        # Sent before the job is touched: a process that dies before this frame has not started the job.
        self._link.send("begun", number)
        self._client = ChildClient(self._link, number, queue, limit)
        # ChildClient has the methods that a running job needs. Its other attributes raise an error that explains this.
        job = job_of_values(cast("QueueClient", self._client), values, ChildJob)
        _ = job.abort  # created here, before the other thread reads it
        self._stop_requested = False
        self._job = job
        self._begin_job()
        try:
            # Context variables that a handler sets end with its run.
            outcome = contextvars.copy_context().run(self._outcome, job, reference, call, trace)
        finally:
            self._job = None
            self._client.functions.updates.close()
        if os.getpid() != self._pid:  # a fork inside the handler returned
            _exit(ENDED)
        _flush()
        if self._logs is not None:
            self._logs.end(job.id)
        # SIGTERM interrupted a plain function somewhere in the middle. Its locks and files may be in any state, so the
        # process ends, and the worker reports the end of the run.
        if self._stop_requested and outcome[0] == "failed" and outcome[2]:
            _exit(STOPPED)
        self._link.send(outcome[0], number, outcome[1], memory_in_use(), self._is_worn())

    def _outcome(
        self, job: Job[Any, Any], reference: str, call: bytes | None, trace: Trace
    ) -> tuple[str, object, bool]:
        """Return kind and value of the outcome, and True if SIGTERM ended the run."""
        try:
            if self._logs is not None:
                self._logs.begin(job.id)
            handler = self._handler(reference, call)
            set_current_job(job)
            adopt_trace(trace)
            value = self._finish(call_plainly(handler, job))
            assert self._client is not None  # noqa: S101 - set for the run
            return "done", self._client.encode(value, "result", job.name, job.id), False
        except asyncio.CancelledError as error:
            return ("cancelled" if self._stop_requested else "failed"), error_to_values(error), False
        except BaseException as error:  # noqa: BLE001 - any error of a handler fails its job
            was_stopped = isinstance(error, SystemExit) and error.code == STOPPED
            return "failed", error_to_values(self._denied(error)), was_stopped

    def _handler(self, reference: str, call: bytes | None) -> Callable[[Job[Any, Any]], Any]:
        function = self._function(reference)
        if call is None:
            return function
        args, kwargs = cast("tuple[list[Any], dict[str, Any]]", MsgpackSerializer().loads(call))
        return FunctionCall(function, tuple(args), kwargs)

    def _function(self, reference: str) -> Callable[..., Any]:
        if reference not in self._functions:
            try:
                self._functions[reference] = resolve(reference)
                self._take_over_logging()
            except Exception as error:
                raise ExecutorError(f"{reference} cannot be imported in the process of the job: {error!r}") from error
        return self._functions[reference]

    def _finish(self, value: Any) -> Any:
        """Return the value, after awaiting it if it is awaitable."""
        if not inspect.isawaitable(value):
            return value
        if self._runner is None:
            self._runner = asyncio.Runner()
        loop = self._runner.get_loop()
        task = loop.create_task(_awaited(value))
        self._task = task
        if self._stop_requested and self._job is not None:  # an abort arrived between the call and its task
            loop.call_soon(self._abort_task, self._job, task, "cancelled")
        try:
            return loop.run_until_complete(task)
        finally:
            self._task = None


async def _awaited(value: Any) -> Any:
    return await value


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A handler may have closed or replaced the stream.
        with suppress(Exception):
            stream.flush()


def _exit(status: int) -> None:
    # Threads that a handler left behind must not keep the process alive.
    _flush()
    os._exit(status)
