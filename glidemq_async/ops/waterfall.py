"""The waterfall of a run: its attempts, steps, waits, signals and children on a time axis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

from glidemq_async.durations import from_ms
from glidemq_async.errors import JobNotFound, SerializationError
from glidemq_async.jobs.job import Job
from glidemq_async.jobs.recorded_steps import RecordedStep
from glidemq_async.jobs.snapshot import job_of_record
from glidemq_async.ops.waterfall_drawing import waterfall_svg
from glidemq_async.ops.waterfall_parts import WaterfallParts, WaterfallRow
from glidemq_async.queues.internals import client_of as queue_client_of
from glidemq_async.queues.queue import Queue
from glidemq_async.stored.flow import JobRef

MOST_CHILDREN: Final = 200
"""Maximum number of children whose times are read."""
_RECEIVE: Final = "workflow.receive"
_SLEEP: Final = "workflow.sleep"
_CALLED: Final = "workflow.call"
_CALL: Final = "call "
_LIBRARY: Final = "workflow."


@dataclass(frozen=True, slots=True)
class Waterfall(WaterfallParts):
    """The waterfall of a run, and its drawing."""

    def to_svg(self, *, styled: bool = True) -> str:
        """Return a drawing as SVG. It has a title, a description and texts; see `FlowGraph.to_svg`."""
        return waterfall_svg(self, styled=styled)


async def read_waterfall(queue: Queue[Any, Any], job_id: str) -> Waterfall:
    """Return the waterfall of a job: of a run of a workflow, or of any job with steps or children.

    The journal contains the times. The library does not store the time at which a job was suspended. A wait that has
    ended is therefore shown from the last end of a step in an earlier run. Raises JobNotFound.
    """
    job = await queue.get_job(job_id)
    if job is None:
        raise JobNotFound(f"queue {queue.name!r} has no job {job_id!r}; its record may have been removed")
    as_of = datetime.now(UTC)
    try:
        steps = await job.get_steps()
    except SerializationError:  # without the codecs of the app, the rest is still worth seeing
        steps = []
    rows = [
        WaterfallRow("job", job.name, _added_at(job), job.finished_at, job.state, detail=job.failed_reason or ""),
        *sorted(_rows(job, steps, as_of, await _children(queue, job, steps)), key=_order),
    ]
    return Waterfall(queue.name, job.id, job.name, job.state, tuple(rows), as_of)


def _added_at(job: Job[Any, Any]) -> datetime:
    return job.created_at or job.processed_at or datetime.now(UTC)


def _order(row: WaterfallRow) -> tuple[datetime, bool]:
    return row.started_at, row.kind != "attempt"


def _rows(
    job: Job[Any, Any], steps: Sequence[RecordedStep], as_of: datetime, children: Sequence[WaterfallRow]
) -> Iterator[WaterfallRow]:
    yield from _attempts(job, steps)
    known = {row.name for row in children}
    for step in steps:
        if step.name == _RECEIVE:
            yield from _receipt(step, _waited_since(step, steps, job))
        elif step.name == _SLEEP:
            due = from_ms(cast("int", step.result))
            yield WaterfallRow("wait", "sleep", step.started_at, min(due, as_of), "completed", step.run)
        elif not step.name.startswith(_LIBRARY) and step.name not in known:
            yield _step(step)
    yield from children
    yield from _open_wait(job, steps)


def _step(step: RecordedStep) -> WaterfallRow:
    error = "" if step.error is None else str(step.error)
    return WaterfallRow("step", step.name, step.started_at, step.finished_at, step.status, step.run, error)


def _attempts(job: Job[Any, Any], steps: Sequence[RecordedStep]) -> Iterator[WaterfallRow]:
    """Return a row for each run that has recorded a step, and for the present or last run."""
    runs: dict[int, list[RecordedStep]] = {}
    for step in steps:
        runs.setdefault(step.run, []).append(step)
    for run, own in sorted(runs.items()):
        began, ended = min(step.started_at for step in own), max(step.finished_at for step in own)
        is_last = run == max(runs)
        end = (None if job.state == "active" else job.finished_at or ended) if is_last else ended
        yield WaterfallRow("attempt", f"run {run}", began, end, job.state if is_last else "suspended", run)
    if not runs and job.processed_at is not None:
        yield WaterfallRow("attempt", "run", job.processed_at, job.finished_at, job.state)


def _receipt(step: RecordedStep, since: datetime) -> Iterator[WaterfallRow]:
    found = cast("list[Any]", step.result)
    names = cast("list[list[str]]", step.arguments)[0] if isinstance(step.arguments, list) else []
    shown = f"receive {' or '.join(names) or 'any signal'}"
    yield WaterfallRow("wait", shown, since, step.finished_at, "received" if found else "timeout", step.run)
    if found:
        sent = from_ms(found[4])
        yield WaterfallRow("signal", str(found[2]), sent, sent, "received", step.run)


def _waited_since(receipt: RecordedStep, steps: Sequence[RecordedStep], job: Job[Any, Any]) -> datetime:
    """Return the time at which a wait began. The time of its receipt may be later: a resumed run repeats the call."""
    earlier = [step.finished_at for step in steps if step.run < receipt.run]
    if earlier:
        return min(max(earlier), receipt.started_at)
    return receipt.started_at if receipt.run == 1 else min(_added_at(job), receipt.started_at)


def _open_wait(job: Job[Any, Any], steps: Sequence[RecordedStep]) -> Iterator[WaterfallRow]:
    if job.suspension is None:
        return
    since = max([job.processed_at or _added_at(job), *(step.finished_at for step in steps)])
    yield WaterfallRow("wait", job.suspension.reason or "sleep", since, None, "suspended")


async def _children(queue: Queue[Any, Any], job: Job[Any, Any], steps: Sequence[RecordedStep]) -> list[WaterfallRow]:
    """Return a row for each child. The journal has the time at which a run has made the call."""
    try:
        found = await job.get_dependencies()
    except JobNotFound:  # the plan has expired
        return []
    called = {str(step.result): step for step in steps if step.name == _CALLED}
    outcomes: dict[JobRef, str] = {
        **dict.fromkeys(found.completed, "completed"),
        **dict.fromkeys([*found.failed, *found.ignored], "failed"),
        **dict.fromkeys(found.pending, "waiting"),
    }
    client = queue_client_of(queue)
    rows: list[WaterfallRow] = []
    for name in dict.fromkeys(ref.queue for ref in outcomes):
        ids = [ref.job_id for ref in outcomes if ref.queue == name][:MOST_CHILDREN]
        other = client if name == queue.name else client.sibling(name)
        for job_id, record in zip(ids, await other.functions.reading.get_outlines(ids), strict=True):
            child = job_of_record(other, job_id, record) if b"place" in record else None
            rows += _child(child, job_id, outcomes[JobRef(name, job_id)], called.get(job_id))
    return rows


def _child(job: Job[Any, Any] | None, job_id: str, outcome: str, call: RecordedStep | None) -> Iterator[WaterfallRow]:
    """Return the row of a child. If its record is gone, the row has the times of the step that has called it."""
    if job is not None:
        began = _added_at(job) if call is None else min(_added_at(job), call.started_at)
        state = job.state if outcome == "waiting" else outcome
        yield WaterfallRow("child", f"{_CALL}{job.name}", began, job.finished_at, state, None, job_id)
    elif call is not None:
        yield WaterfallRow("child", f"{_CALL}job", call.started_at, call.finished_at, outcome, None, job_id)
