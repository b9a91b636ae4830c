"""Exceptions of steps and workflows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glidemq_async.errors.base import GlideMQError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class JournalFull(GlideMQError):
    """Raised when a run records more steps, or larger ones, than the StepLimits of its worker allow."""

    def __init__(self, job_id: str, step: str, found: str, option: str) -> None:
        super().__init__(
            f"step {step!r} cannot be recorded in the journal of job {job_id}: {found}; split the work into several "
            f"jobs, store large results elsewhere, or raise {option} in StepLimits of the worker"
        )
        self.job_id = job_id
        self.step = step
        self.found = found
        self.option = option

    def __reduce__(self) -> tuple[Callable[..., JournalFull], tuple[object, ...]]:
        return type(self), (self.job_id, self.step, self.found, self.option)


class StepFailed(GlideMQError):
    """Raised for a step whose last attempt has failed. The failure is recorded, so later runs raise it too.

    `step` is the name of the step, `error_type` the class name of its exception, `message` its text, and `traceback`
    the stored part of its traceback as text. Only steps with attempts record failures. A job whose handler does not
    catch this error fails without another attempt. After `job.retry()` the step is executed again.
    """

    def __init__(self, step: str, error_type: str, message: str, traceback: str = "") -> None:
        super().__init__(f"step {step!r} has failed: {error_type}: {message}" if message else f"{step!r}: {error_type}")
        self.step = step
        self.error_type = error_type
        self.message = message
        self.traceback = traceback

    def __reduce__(self) -> tuple[Callable[..., StepFailed], tuple[object, ...]]:
        return type(self), (self.step, self.error_type, self.message, self.traceback)


class WorkflowDiverged(GlideMQError):
    """Raised when the code of a workflow has changed and its job runs again, and steps do not fit the recorded ones.

    `left` has the recorded calls that the run did not ask for, and `asked` the calls that it asked for instead, both
    as text. The job fails with the cause "diverged", and keeps its journal.
    """

    def __init__(self, workflow: str, left: Sequence[str], asked: Sequence[str]) -> None:
        super().__init__(
            f"workflow {workflow!r} has changed since this job ran: recorded {', '.join(left)}; asked instead for "
            f"{', '.join(asked) or 'nothing'}. Start a worker with the earlier code and retry the job, or accept the "
            "new code with run.accept() or `glidemq workflows accept`"
        )
        self.workflow = workflow
        self.left = tuple(left)
        self.asked = tuple(asked)

    def __reduce__(self) -> tuple[Callable[..., WorkflowDiverged], tuple[object, ...]]:
        return type(self), (self.workflow, self.left, self.asked)


class WorkflowExists(GlideMQError):
    """Raised by `workflow.start(id=..., on_conflict="refuse")` and `run.fork(id=...)` if a job has this id.

    `state` is the state of that job.
    """

    def __init__(self, workflow: str, run_id: str, state: str) -> None:
        super().__init__(
            f"workflow {workflow!r} cannot start with the id {run_id!r}: a job with this id is {state}; "
            'choose another id, or use that run, which start() returns with on_conflict="return"'
        )
        self.workflow = workflow
        self.run_id = run_id
        self.state = state

    def __reduce__(self) -> tuple[Callable[..., WorkflowExists], tuple[object, ...]]:
        return type(self), (self.workflow, self.run_id, self.state)
