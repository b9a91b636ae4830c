"""A worker reports the duration of each completed run and of each failed run once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from glidemq_async.functions.outcomes import Completed, Failed, Outcome
from glidemq_async.jobs.abort import AbortSignal
from glidemq_async.worker.run_times import RunTimes
from glidemq_async.worker.runs import Run


def ended(outcome: Outcome, seconds: float) -> Run:
    run = Run(cast("Any", SimpleNamespace(abort=AbortSignal())), "p1-0", has_options=False)
    run.outcome, run.seconds = outcome, seconds
    return run


def test_the_duration_of_a_revoked_run_is_never_reported() -> None:
    completed, failed = ended(Completed(b""), 1.0), ended(Failed(b"", "unrecoverable", "error"), 2.0)
    revoked = ended(Failed(b"", "revoked", "revoked"), 4.0)
    times = RunTimes()
    assert times.report([completed, failed, revoked]) == (1_000, 2_000)
    times.counted([completed], [failed, revoked])
    assert times.report([failed, revoked]) == (0, 2_000)
    times.counted([failed, revoked], [])
    assert times.report([revoked]) == (0, 0)
