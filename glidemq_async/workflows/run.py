"""The run of a workflow in the current context, and the check that its code still asks for the recorded steps."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Literal, TypeAlias, cast

from glidemq_async.errors import StepFailed, UnrecoverableError, WorkflowDiverged
from glidemq_async.jobs.journal import Journal
from glidemq_async.jobs.recorded_steps import RecordedStep
from glidemq_async.jobs.step_recorder import Failures, StepCall
from glidemq_async.workflows.clock import RunClock
from glidemq_async.workflows.task_calls import TaskCalls
from glidemq_async.workflows.waiting import Given, Waiting

OnDivergence: TypeAlias = Literal["park", "warn", "fail"]
POLICIES: Final = ("park", "warn", "fail")
LIBRARY_STEPS: Final = "workflow."
"""The beginning of the names of steps that are not declared by a user."""

_log = logging.getLogger(__name__)
_current: Final[ContextVar[WorkflowRun | None]] = ContextVar("glidemq_workflow", default=None)
_TURNS: Final = 20
"""Turns of the event loop for which a new step waits for the other tasks of its run to ask for their recorded steps."""
_MOST_SHOWN: Final = 10


class WorkflowRun:
    """One run of a workflow: its journal, and the fingerprint of its code."""

    def __init__(
        self,
        journal: Journal,
        workflow: str,
        code: str,
        on_divergence: OnDivergence,
        given: Given | None = None,
        clock: RunClock | None = None,
    ) -> None:
        self.journal = journal
        journal.set_code(code)
        self.clock = clock or RunClock()
        self.waiting = Waiting(journal, given or Given(), self.clock)
        self.children = TaskCalls(journal, self.waiting)
        self.loop = asyncio.get_running_loop()
        self._workflow = workflow
        self.code = code
        """The fingerprint of the code of the function."""
        self._questions: dict[int, tuple[object, str]] = {}
        """The received signals whose senders wait for a reply, by their object ids, with their questions."""
        self._policy = on_divergence
        self._diverged: Exception | None = None

    async def ask(
        self,
        name: str,
        arguments: object,
        execute: Callable[[], Awaitable[object]],
        *,
        key: str | None = None,
        recorded_failures: Failures = (),
    ) -> object:
        """Return the result of a step, like `Journal.call`. Raises WorkflowDiverged before an unexpected step."""

        async def checked() -> object:
            if self._policy != "warn" and not name.startswith(LIBRARY_STEPS):
                await self._refuse_changed(name, arguments)
            return await execute()

        call = StepCall(name, arguments, key, self.code)
        return await self.journal.call(call, checked, recorded_failures=recorded_failures)

    def recall(self, name: str, arguments: object, key: str | None) -> tuple[object] | None:
        """Return the recorded result of a step, None if it is to be asked for with `ask`. Raises StepFailed."""
        return self.journal.recall(name, arguments, key)

    def note_question(self, signal: object, question: str) -> None:
        """Note that the sender of a received signal waits for a reply."""
        self._questions[id(signal)] = signal, question

    def question_of(self, signal: object) -> str | None:
        """Return the question of a received signal, None if its sender waits for no reply."""
        return self._questions.get(id(signal), (None, None))[1]

    # An amount has changed in the code, and the job runs again: the step with the old amount is recorded, and the run
    # asks for one with the new amount. At the end of the run it would be too late, because a customer would have paid
    # twice. So a step is not executed while a step of the same name is left that other code has recorded.
    #
    # A concurrent task of this run may be about to ask for the recorded step. A recorded step needs no time, so some
    # turns of the event loop are enough for the other tasks.
    async def _refuse_changed(self, name: str, arguments: object) -> None:
        for _ in range(_TURNS):
            if self._diverged is not None:
                raise self._diverged
            if not self.journal.has_left(name):
                return
            await asyncio.sleep(0)
        self._diverge(
            [step for step in self.steps_left() if step.name == name], [shown_call(StepCall(name, arguments))]
        )

    def failure(self, error: Exception) -> Exception:
        """Return the exception with which the run fails, if its function has raised `error`."""
        if self._diverged is not None:
            return self._diverged
        # A task group hides the failure of a step, and the worker would repeat a run that cannot succeed.
        return only_failure(error) or error

    def end(self) -> None:
        """Check a run that has ended. Raises WorkflowDiverged, or UnrecoverableError with the policy "fail"."""
        if self._diverged is not None:  # the function has caught the error
            raise self._diverged
        if left := self.steps_left():
            self._diverge(left, [call_of(step) for step in self.journal.new_steps() if _is_own(step)])

    def steps_left(self) -> list[RecordedStep]:
        """Return the steps that other code has recorded and this run has not asked for."""
        # The same code may ask for other steps too: a step that was too slow for a timeout is fast when it is recorded.
        # That does not change the workflow.
        if not self.journal.has_left():
            return []
        return [step for step in self.journal.steps_not_asked() if step.code not in ("", self.code) and _is_own(step)]

    def _diverge(self, left: Sequence[RecordedStep], asked: Sequence[str]) -> None:
        error = WorkflowDiverged(self._workflow, _few([call_of(step) for step in left]), _few(asked))
        if self._policy == "warn":
            _log.warning("%s", error)
            return
        self._diverged = error if self._policy == "park" else UnrecoverableError(str(error))
        raise self._diverged


def current_run() -> WorkflowRun | None:
    """Return the run of the workflow that calls, None outside of a workflow and inside of a step."""
    return _current.get()


@contextmanager
def running(run: WorkflowRun | None) -> Generator[None]:
    """Make a run the current one of this context. None: calls of steps are ordinary calls."""
    token = _current.set(run)
    try:
        yield
    finally:
        _current.reset(token)


def required_run(what: str) -> WorkflowRun:
    """Return the current run. Raises RuntimeError outside of a workflow."""
    run = _current.get()
    if run is None:
        raise RuntimeError(f"{what} was called outside of a workflow; call it in a function declared with @mq.workflow")
    return run


def _is_own(step: RecordedStep) -> bool:
    """Return whether a step is one of the workflow, and not a time or a number that the library has recorded."""
    return not step.name.startswith(LIBRARY_STEPS)


def only_failure(error: Exception) -> StepFailed | None:
    """Return the first failure of a step in a group, None if the group has another error too."""
    if not isinstance(error, ExceptionGroup):
        return None
    failed, others = cast("ExceptionGroup[Exception]", error).split(StepFailed)
    if failed is None or others is not None:
        return None
    first: BaseException = failed
    while isinstance(first, BaseExceptionGroup):
        first = cast("BaseExceptionGroup[BaseException]", first).exceptions[0]
    return first if isinstance(first, StepFailed) else None


def call_of(step: RecordedStep) -> str:
    """Return the call of a recorded step as text."""
    return shown_call(StepCall(step.name, step.arguments, step.key))


def shown_call(call: StepCall) -> str:
    """Return a call of a step as text."""
    return f"{call.name}({_shown(call.arguments)})" if call.key is None else f"{call.name}(key={call.key!r})"


def _shown(arguments: object) -> str:
    if arguments is None:
        return "…"
    values, named = cast("tuple[list[object], dict[str, object]]", arguments)
    return ", ".join([*map(repr, values), *(f"{name}={value!r}" for name, value in named.items())])


def _few(calls: Sequence[str]) -> list[str]:
    more = [f"and {len(calls) - _MOST_SHOWN} more"] if len(calls) > _MOST_SHOWN else []
    return [*calls[:_MOST_SHOWN], *more]
