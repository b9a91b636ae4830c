"""Workflows: tasks whose functions call steps, and the handles of their runs."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any, Final, Generic, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, cast, get_args

from glidemq_async.errors import WorkflowExists
from glidemq_async.jobs import mending
from glidemq_async.jobs.context import current_job
from glidemq_async.jobs.job import Job, journal_of
from glidemq_async.jobs.journal import forget_last_step
from glidemq_async.jobs.recorded_steps import RecordedStep
from glidemq_async.jobs.replies import Asking, Reply, awaited_reply
from glidemq_async.jobs.snapshot import client_of, hand_over_of, started_ms
from glidemq_async.options.job_options import JobOptions
from glidemq_async.stored.record import State
from glidemq_async.tasks.dependencies import injected
from glidemq_async.tasks.task import Task
from glidemq_async.workflows.clock import RunClock
from glidemq_async.workflows.fingerprint import fingerprint_of
from glidemq_async.workflows.run import POLICIES, OnDivergence, WorkflowRun, running
from glidemq_async.workflows.waiting import Given
from glidemq_async.workflows.warm import WarmWorkflow, keep_warm, take_warm

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

OnConflict: TypeAlias = Literal["return", "refuse"]
NewCode: TypeAlias = Literal["continue", "pin"]
"""The workers that continue runs of earlier code: all workers of the workflow, or only workers with that code."""


class RunHandle(Generic[R]):
    """A run of a workflow. Created by `workflow.start`. `job` is its job."""

    def __init__(self, job: Job[Any, R]) -> None:
        self.job = job

    def __repr__(self) -> str:
        return f"<RunHandle {self.id} of workflow {self.job.name!r}>"

    @property
    def id(self) -> str:
        """The id of the run, which is the id of its job."""
        return self.job.id

    async def result(self, timeout: float | timedelta | None = None) -> R:
        """Wait up to `timeout` seconds for the result of the run. Raises the errors of `Job.result`."""
        return await self.job.result(timeout)

    async def state(self) -> State:
        """Return the current state of the job. Raises JobNotFound."""
        return await self.job.get_state()

    async def send(self, signal: object, *, ttl: float | timedelta | None = None, once: str | None = None) -> bool:
        """Send an instance of a class with `@mq.signal` to the run; see `Queue.send`."""
        return await self.job.send(signal, ttl=ttl, once=once)

    async def signal(
        self, name: str, data: object = None, *, ttl: float | timedelta | None = None, once: str | None = None
    ) -> bool:
        """Deliver a signal to the run; see `Queue.signal`."""
        return await self.job.signal(name, data, ttl=ttl, once=once)

    async def send_and_wait(
        self,
        signal: object,
        data: object = None,
        *,
        timeout: float | timedelta | None = None,
        ttl: float | timedelta | None = None,
        once: str | None = None,
        reply_type: type[Reply] | None = None,
    ) -> Reply:
        """Send a signal to the run, and return what it passes to `workflows.reply`; see `Queue.send_and_wait`."""
        asking = Asking(signal, data, ttl, once)
        return await awaited_reply(client_of(self.job), self.id, asking, timeout, reply_type)

    async def cancel(self, reason: str | None = None) -> bool:
        """Cancel the run: it fails with the reason "revoked"; see `Job.revoke`. Return False if a worker must stop it.

        A run that executes gets CancelledError where it awaits, and its `except` and `finally` blocks may call steps,
        for example to undo earlier ones. A suspended run ends without executing anything. Children that the run has
        added are cancelled with all jobs below them. When this returns, none of them starts any more.
        """
        return await self.job.revoke(reason)

    async def retry(self) -> None:
        """Run the failed run again with fresh attempts. Recorded steps are not repeated, failed ones are.

        Raises JobStateError if the run has not ended, and JobNotFound.
        """
        await self.job.retry()

    async def restart(self) -> None:
        """Run the ended run again from the beginning, without its recorded steps and signals.

        Raises JobStateError if the run has not ended, and JobNotFound.
        """
        await mending.restart(self.job)

    async def accept(self) -> None:
        """Retry the failed run, and let its changed code leave out steps that are recorded.

        Use it when the run has failed with WorkflowDiverged, and the new code is right. Steps that fit are not
        repeated. Raises JobStateError if the run has not failed, and JobNotFound.
        """
        await mending.accept(self.job)

    async def fork(self, *, before: str | None = None, id: str | None = None) -> RunHandle[R]:  # noqa: A002
        """Start another run with the arguments and the recorded steps of this one, which remains as it is.

        `before` is the name of a step: the fork repeats the steps from the first one of this name on. Steps that ended
        before it began are not repeated. The fork has the options of the run, and the header `forked_from`. If this
        process dies before the steps are copied, the fork remains delayed and never starts.

        Raises JobNotFound, WorkflowExists if a job has the `id`, and ValueError if no recorded step has the name.
        """
        return RunHandle(await mending.fork(self.job, before, id))

    async def steps(self) -> list[RecordedStep]:
        """Return the recorded steps, in the order in which they ended; see `Job.get_steps`."""
        return await self.job.get_steps()


class Workflow(Generic[P, R]):
    """A coroutine function whose steps are executed once for each run. Created by `mq.workflow`.

    `start` starts a run, which is a job of the workflow's task. Calling the workflow calls the function directly, and
    nothing is recorded.
    """

    def __init__(self, task: Task[P, R], function: Callable[P, Coroutine[Any, Any, R]]) -> None:
        self.task = task
        self.function = function
        functools.update_wrapper(self, function)

    def __repr__(self) -> str:
        return f"<Workflow {self.name!r} of queue {self.queue!r}>"

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Call the function directly. Await the return value."""
        return self.function(*args, **kwargs)

    @property
    def name(self) -> str:
        """The name of its jobs."""
        return self.task.name

    @property
    def queue(self) -> str:
        """The name of the queue for its jobs."""
        return self.task.queue

    async def start(
        self,
        /,
        *args: Any,
        id: str | None = None,  # noqa: A002
        on_conflict: OnConflict = "return",
        **kwargs: Any,
    ) -> RunHandle[R]:
        """Start a run with these arguments, and return its handle.

        If a job with this `id` exists, in any state, no run is started: "return" returns the handle of that job, and
        "refuse" raises WorkflowExists. Raises TypeError, which names the argument, if the arguments do not fit,
        ValueError for any other `on_conflict`, and the errors of `Queue.add`.
        """
        if on_conflict not in get_args(OnConflict):
            raise ValueError(f'on_conflict must be "return" or "refuse", got {on_conflict!r}')
        options = JobOptions() if id is None else JobOptions(job_id=id)
        add = cast("Callable[..., Coroutine[Any, Any, Job[Any, R]]]", self.task.options(options).add)
        job = await add(*args, **kwargs)
        if job.outcome != "added" and on_conflict == "refuse":
            raise WorkflowExists(self.name, job.id, "gone" if job.gone else job.state)
        return RunHandle(job)


def given_to(job: Job[Any, Any]) -> Given:
    """Return the values that the resume of a job gives to its present run."""
    kept = hand_over_of(job)
    return Given(*kept) if kept.cause else Given()


class WorkflowDecorator(Protocol):
    """Turns a coroutine function into a workflow and keeps its signature."""

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Workflow[P, R]: ...


_bodies: Final[weakref.WeakSet[Callable[..., Any]]] = weakref.WeakSet()


def is_body(function: Callable[..., Any]) -> bool:
    """Return whether the function of a task is the function of a workflow."""
    return function in _bodies


def _note_body(body: F) -> F:
    _bodies.add(body)
    return body


def is_pinned(new_code: NewCode) -> bool:
    """Return whether only the same code continues a run. Raises ValueError for another option."""
    if new_code not in get_args(NewCode):
        raise ValueError(f"new_code must be one of {', '.join(get_args(NewCode))}, got {new_code!r}")
    return new_code == "pin"


def body_of(
    function: Callable[P, Coroutine[Any, Any, R]], on_divergence: OnDivergence
) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return the function of a workflow's task. Raises ValueError for a bad policy."""
    if on_divergence not in POLICIES:
        raise ValueError(f"on_divergence must be one of {', '.join(POLICIES)}, got {on_divergence!r}")
    code = fingerprint_of(function)

    # A provided parameter, for example a session of a database, is closed when the run ends.
    has_providers = bool(injected(function))

    @_note_body
    @functools.wraps(function)
    async def body(*args: P.args, **kwargs: P.kwargs) -> R:
        job = current_job()
        given, clock = given_to(job), RunClock(started_ms(job))
        warm = take_warm(job, given)
        run = warm.run if warm else WorkflowRun(journal_of(job), job.name, code, on_divergence, given, clock)
        keep = partial(keep_warm, warm or WarmWorkflow(job, run), is_allowed=not has_providers)
        forget_last_step()
        with running(run):
            try:
                if warm is not None:
                    result = cast("R", await warm.go_on(job, given, clock, keep))
                else:
                    result = await run.waiting.drive(lambda: function(*args, **kwargs), keep)
            except Exception as error:
                failure = run.failure(error)
                if failure is error:
                    raise
                raise failure from error
        run.end()
        return result

    return body
