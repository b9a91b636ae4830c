"""An abort that reaches a child process while its handler turns into a task."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from glidemq_async.executors.subprocess.child import JobProcess
from glidemq_async.jobs.abort import AbortSignal


class _Interleaved(JobProcess):
    """A child whose main thread stores the task of its run at the moment in which the other thread looks for it."""

    main_thread_saw_the_abort = False

    def __init__(self) -> None:
        self._job: Any = SimpleNamespace(id="1", abort=AbortSignal())
        self._stop_requested = False

    @property
    def _task(self) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleVariableOverride]
        # The reading thread gets None. Before it continues, `_finish` stores the task and checks for an abort.
        self.main_thread_saw_the_abort = self._stop_requested


def test_an_abort_before_the_task_exists_is_noticed_by_the_main_thread() -> None:
    child = _Interleaved()
    child._abort(["abort", "1", "revoked"])
    assert child.main_thread_saw_the_abort
