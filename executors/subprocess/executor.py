"""The subprocess executor: jobs run in warm processes, so that a crash, a leak or an endless loop affects one job."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from types import FunctionType
from typing import Any, Final, Literal

from glidemq_async._internal.waits import together
from glidemq_async.durations import to_ms
from glidemq_async.errors import ExecutorError
from glidemq_async.executors.calls import FunctionCall
from glidemq_async.executors.deadlines import waiting
from glidemq_async.executors.permissions import Permissions
from glidemq_async.executors.protocol import Handler
from glidemq_async.executors.subprocess.channel import Flow
from glidemq_async.executors.subprocess.environment import plain_environment
from glidemq_async.executors.subprocess.output import output_of
from glidemq_async.executors.subprocess.pool import Pool, PooledChild, PoolSettings
from glidemq_async.executors.subprocess.receiving import OwnLevels
from glidemq_async.executors.subprocess.references import reference_of, refuse_while_reading_main
from glidemq_async.executors.subprocess.run import SLACK, ChildOutcome, ChildRun
from glidemq_async.executors.subprocess.tracing import current_trace
from glidemq_async.jobs.abort import set_abort
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.snapshot import payload_limit, values_of
from glidemq_async.options.validation import positive_number, whole_number
from glidemq_async.payloads.serialization import MsgpackSerializer
from glidemq_async.storage.urls import VARIABLE

_JOBS_OF_A_PROCESS: Final = 1_000
"""Number of jobs after which a process is replaced when jobs need not be isolated from each other."""

MOST_LOST: Final = 3
"""Number of processes that may die before they start a job. After that, the job fails."""

_log = logging.getLogger(__name__)


_FEW_JOBS: Final = 10
_LOADED: Final = ("glidemq_async:Queue", "glidemq_async:GlideMQ")
"""Imports that the guard makes for processes that run few jobs, which would spend most of their time on them."""


class SubprocessExecutor:
    """Runs each job in a process from a pool of warm processes. Handlers are plain or coroutine functions.

    - `processes`: maximum number of processes that run jobs at the same time.
    - `permissions`: the permissions of jobs (see docs/permissions.md); None restricts only the environment.
    - `start_method`: "forkserver" forks processes from a clean one, in milliseconds; "spawn" starts an interpreter
      for each.
    - `max_jobs`: the number of jobs after which a process is replaced; None: never. "auto" is 1 with `permissions`,
      so that no job sees data that another one left in its process, and 1,000 without.
    - `max_memory`: a process that holds more bytes of memory after a job is replaced; None: never.
    - `grace`: seconds in which a run must stop (timeout, revoked, shutdown). Its abort signal is set immediately, it
      gets SIGTERM after half of the time and SIGKILL after all of it. All processes that it started are killed too.
    - `heartbeat_timeout`: a run that makes no call of its job (heartbeat, log, progress, data) for this many seconds is
      stopped like one that exceeds its timeout; None: runs may be silent.
    - `capture_output`: True logs the lines that jobs write to stdout and stderr in their jobs; False passes them on to
      the worker's stdout and stderr, at most 4 MiB a second each.
    - `forward_logs`: True sends log records of jobs to the worker's loggers and ignores any logging set-up of imported
      code; False uses that set-up, or writes warnings to stderr without one.
    - `setup`: a function of a module, without arguments, that each process calls once before its first job.
    - `frames_per_second`, `bytes_per_second`: limits of what the worker reads from each process. A job that sends more
      (log records, progress, a result) waits; nothing is lost.
    - `warm`: number of processes that start with the worker; the others start when they are first needed.

    If a process ends while it runs a job, the job fails with an ExecutorError that has the exit status or signal. If it
    ends before it has started the job, another process runs the job, and no attempt is counted.
    The handler must be a function at the top level of a module. Raises TypeError and ValueError for bad options.
    """

    def __init__(
        self,
        processes: int,
        *,
        permissions: Permissions | None = None,
        start_method: Literal["forkserver", "spawn"] = "forkserver",
        max_jobs: int | Literal["auto"] | None = "auto",
        max_memory: int | None = None,
        grace: float | timedelta = 5.0,
        heartbeat_timeout: float | timedelta | None = None,
        capture_output: bool = False,
        forward_logs: bool = True,
        setup: Callable[[], Any] | str | None = None,
        warm: int = 1,
        frames_per_second: int = 3_000,
        bytes_per_second: int = 128 * 2**20,
    ) -> None:
        self._processes = positive_number("processes", processes)
        self._warm = min(whole_number("warm", warm, least=0), processes)
        if start_method not in ("forkserver", "spawn"):
            raise ValueError(f'start_method must be "forkserver" or "spawn", got {start_method!r}')
        self._start_method = start_method
        if max_jobs == "auto":
            max_jobs = _JOBS_OF_A_PROCESS if permissions is None else 1
        self._max_jobs = None if max_jobs is None else positive_number("max_jobs", max_jobs)
        self._max_memory = None if max_memory is None else whole_number("max_memory", max_memory, least=1)
        self.grace = to_ms("grace", grace) / 1000
        self._silence = None
        if heartbeat_timeout is not None:
            self._silence = to_ms("heartbeat_timeout", heartbeat_timeout, allow_zero=False) / 1000
        self._flow = Flow(
            positive_number("frames_per_second", frames_per_second),
            positive_number("bytes_per_second", bytes_per_second),
        )
        self._permissions = permissions
        self._capture_output = capture_output
        self._levels = OwnLevels() if forward_logs else None
        self._setup = setup if isinstance(setup, str) else reference_of(setup) if setup is not None else ""
        self._references: dict[Callable[..., Any], str] = {}
        self._pool: Pool | None = None

    @property
    def occupied(self) -> int:
        """Always 0: a process that does not stop is killed before its run ends."""
        return 0

    def check_handler(self, handler: Handler) -> None:
        """Register a function that will run here. Raises TypeError with a remedy if a process cannot import it."""
        self._reference(handler)

    async def start(self, freed: Callable[[], None]) -> None:
        """Start the first processes. Raises ExecutorError when they cannot be prepared."""
        del freed
        refuse_while_reading_main()
        output = output_of(captured=self._capture_output, is_plain=self._permissions is not None)
        pool = Pool(PoolSettings(self._processes, self._config(), self._environment(), output, self._flow))
        self._pool = pool
        try:
            for child in await together(pool.take() for _ in range(self._warm)):
                pool.give_back(child)
        except BaseException:  # cancelled, too: no process may be left after an incomplete start
            await self.stop(0.0)
            raise

    def _config(self) -> dict[str, Any]:
        return {
            "fresh": self._start_method == "spawn",
            "permissions": None if self._permissions is None else asdict(self._permissions),
            "loaded": self._loaded(),
            "setup": self._setup,
            "levels": None if self._levels is None else self._levels.now(),
            "handlers": sorted(set(self._references.values())),
            "storage_disabled": VARIABLE in os.environ and VARIABLE not in self._environment(),
        }

    def _loaded(self) -> list[str]:
        """Return the modules that the guard imports for its children."""
        loaded = [] if self._permissions is None else ["glidemq_async.executors.sandbox"]
        is_short = self._max_jobs is not None and self._max_jobs <= _FEW_JOBS
        return [*loaded, *(_LOADED if is_short else ())]

    def _environment(self) -> dict[str, str]:
        if self._permissions is None:
            return plain_environment(os.environ)
        sandbox = importlib.import_module("glidemq_async.executors.sandbox")
        environment: dict[str, str] = sandbox.child_environment(self._permissions, os.environ)
        return environment

    async def run(self, handler: Handler, job: Job[Any, Any], timeout: float | None) -> object:
        """Run the handler in a free process. Raises TimeoutError `timeout` seconds after its start.

        Raises the errors of the handler, ExecutorError when its process ends or none can be started, TypeError and
        SerializationError for values that cannot be sent.
        """
        if self._pool is None:
            raise ExecutorError("the subprocess executor is not started; call start() before run()")
        work = self._work(handler, job)
        _ = job.abort
        outcome = await self._run_once(self._pool, work, job, timeout)
        for _ in range(MOST_LOST - 1):
            if outcome.kind != "lost":
                break
            # The process was dead, or died before it started the job, so the job cannot be the cause.
            _log.warning("job %s: %s; another process runs it", job.id, outcome.value)
            outcome = await self._run_once(self._pool, work, job, timeout)
        return outcome.result()

    async def _run_once(
        self, pool: Pool, work: list[object], job: Job[Any, Any], timeout: float | None
    ) -> ChildOutcome:
        """Run the job in the next free process."""
        # A process runs one job after another, so everything that an earlier job left behind must be kept out of this
        # one. `child.begin_run` numbers the run, and frames carry the number. `channel.begin` drops the frames that
        # arrived since the previous run. Log records and output are assigned to this job only between
        # `begin` and `end`. All of that comes before the frame "run", after which the new job may send its first frame.
        #
        # After any error here the state of the process is unknown, so it is killed and not returned to the pool.
        with waiting():
            child = await pool.take()
        child.begin_run()
        child.channel.begin(payload_limit(job) + SLACK)
        child.records.begin(job)
        if child.output is not None:
            child.output.begin(job)
        try:
            self._send_levels(child)
            child.channel.send("run", child.run, *work)
            outcome = await self._await_outcome(pool, child, job, timeout)
        except BaseException:
            pool.end(child)
            raise
        finally:
            child.records.end()
            if child.output is not None:
                await child.output.end()
        self._keep_or_replace(pool, child, outcome)
        return outcome

    def _send_levels(self, child: PooledChild) -> None:
        if self._levels is not None and child.levels is not (now := self._levels.now()):
            child.levels = now
            child.channel.send("levels", now)

    async def _await_outcome(
        self, pool: Pool, child: PooledChild, job: Job[Any, Any], timeout: float | None
    ) -> ChildOutcome:
        """Wait for the outcome. End the run when its time is over or this call is cancelled."""
        cpu = None if self._permissions is None else self._permissions.cpu
        run = ChildRun(child, job, self._silence, cpu)
        serving = asyncio.create_task(run.serve())
        try:
            await asyncio.wait({serving}, timeout=timeout)
        except asyncio.CancelledError:
            set_abort(job.abort, "cancelled")
            # The worker cancels this call once and then waits for it. So the whole grace is spent here, and the process
            # gets its SIGKILL before the job can be released to another worker.
            outcome = await run.stop(serving, job.abort.reason, self.grace, pool.signal)
            if outcome.kind != "done":
                raise
            # The run completed before it could be stopped. Its process is replaced anyway.
            pool.end(child)
            return outcome
        if serving.done() and serving.result().kind != "silent":
            return serving.result()
        late = f"the run took longer than its timeout of {timeout:g} s" if timeout else ""
        if serving.done():
            late = f"the run was silent for longer than its heartbeat_timeout of {self._silence:g} s"
            # Calls of the handler are still served during the grace, now without a limit for silence: a handler that
            # reacts to the abort may log something before it ends.
            serving = asyncio.create_task(ChildRun(child, job, None).serve())
        set_abort(job.abort, "timeout")
        await run.stop(serving, "timeout", self.grace, pool.signal)
        raise TimeoutError(late)

    def _keep_or_replace(self, pool: Pool, child: PooledChild, outcome: ChildOutcome) -> None:
        if outcome.kind in {"died", "lost"}:
            pool.end(child)
        elif self._is_worn(child, outcome):
            pool.retire(child)
        elif child.is_alive:
            pool.give_back(child)

    def _is_worn(self, child: PooledChild, outcome: ChildOutcome) -> bool:
        if self._max_jobs is not None and child.jobs >= self._max_jobs:
            return True
        if self._max_memory is not None and outcome.memory > self._max_memory:
            return True
        return outcome.is_worn

    def _work(self, handler: Handler, job: Job[Any, Any]) -> list[object]:
        call = None
        if isinstance(handler, FunctionCall):
            call = MsgpackSerializer().dumps([handler.args, handler.kwargs])
            handler = handler.function
        return [self._reference(handler), job.queue, payload_limit(job), values_of(job), call, current_trace()]

    def _reference(self, function: Callable[..., Any]) -> str:
        if not isinstance(function, FunctionType):
            return reference_of(function)  # it may not be hashable
        if function not in self._references:
            self._references[function] = reference_of(function)
        return self._references[function]

    async def stop(self, grace: float) -> None:
        """End all processes: ask idle ones to end, and kill the rest after `grace` seconds."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.stop(max(grace, 0.0))
