"""Endpoints for programs in any language: add jobs, wait for results, send signals, read streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, cast

from starlette.responses import Response

from glidemq_async.errors import DuplicateSignal, JobFailed, JobNotFound, ResultTimeout
from glidemq_async.integrations.starlette import stream_response
from glidemq_async.jobs.job import Job
from glidemq_async.ops.documents import as_document
from glidemq_async.options.backoff import Backoff
from glidemq_async.options.deduplication import Deduplication
from glidemq_async.options.job_options import JobOptions
from glidemq_async.options.retention import KeepJobs
from glidemq_async.queues.queue import Queue
from glidemq_async.stored.record import FINAL
from glidemq_async.web.endpoints import ApiCall, ApiRoute, Reply, parse, parse_json
from glidemq_async.web.models import NewAwaitedJob, NewJob, OptionsModel, ResultQuery, SignalBody
from glidemq_async.web.problems import RequestError, problem_of
from glidemq_async.web.replies import AddedJob, Done, EndedJob

REPLAY_SECONDS: Final = 86_400.0
"""Time for which a repeated Idempotency-Key adds no further job."""
LINES_AT_ONCE: Final = 500
LONGEST_KEY: Final = 255


async def add(call: ApiCall) -> Reply | Response:
    """Add a job, or one for each line."""
    if call.body is None:
        return Response(await _add_lines(call), media_type="application/x-ndjson")
    name = call.path["queue"]
    options = options_of(call.body.options, idempotency_key(call))
    queue = await call.ops.queue(name)
    async with call.ops.changing("add", name, reason=call.reason, job=call.body.name) as change:
        job = await queue.add(call.body.name, data_of(call.body), options)
        change.target = job.id
    return Reply(AddedJob(name, job.id, job.outcome), None if job.outcome == "added" else 200)


async def add_and_wait(call: ApiCall) -> Reply:
    """Add a job, and wait for its result."""
    name = call.path["queue"]
    queue = await call.ops.queue(name)
    options = options_of(call.body.options, idempotency_key(call))
    async with call.ops.changing("add", name, reason=call.reason, job=call.body.name) as change:
        job = await queue.add(call.body.name, data_of(call.body), options)
        change.target = job.id
    return Reply(await ended(name, job, call.body.wait))


async def result(call: ApiCall) -> Reply:
    """Return the result of a job, after a wait for its end."""
    queue = await call.ops.queue(call.path["queue"])
    job = await queue.get_job(call.path["job"])
    if job is None:
        raise JobNotFound(f"job {call.path['job']!r} of queue {call.path['queue']!r} does not exist")
    return Reply(await ended(call.path["queue"], job, call.query.wait))


async def ended(queue: str, job: Job[Any, Any], seconds: float) -> EndedJob:
    """Return the state of a job when it has ended, or after `seconds`."""
    try:
        if seconds or job.state in FINAL:
            value = await job.result(timeout=seconds or 0.5)
            return EndedJob(queue, job.id, "completed", as_document(value))
    except JobFailed as error:
        return EndedJob(queue, job.id, "failed", None, error.error_type, error.message)
    except ResultTimeout:
        pass
    return EndedJob(queue, job.id, await job.get_state())


async def signal(call: ApiCall) -> Reply:
    """Send a signal to a job."""
    queue, job_id, name = call.path["queue"], call.path["job"], call.path["signal"]
    key = idempotency_key(call)
    once = call.body.once or (key and f"http:{key}") or None
    target = await call.ops.queue(queue)
    try:
        async with call.ops.changing("signal", queue, job_id, reason=call.reason, signal=name):
            await target.signal(job_id, name, call.body.data, ttl=call.body.ttl, once=once)
    except DuplicateSignal:
        if call.body.once or not key:
            raise
    return Reply(Done("signal", queue, job_id))


async def chunks(call: ApiCall) -> Response:
    """Stream the chunks of a job as server-sent events."""
    queue = await call.ops.queue(call.path["queue"])
    return stream_response(queue, call.path["job"], encode=lambda value: json.dumps(as_document(value)))


def idempotency_key(call: ApiCall) -> str:
    """Return the header Idempotency-Key, "" without it. Raises RequestError for a bad one."""
    key = call.headers.get("idempotency-key", "")
    if len(key) > LONGEST_KEY or not (key.isascii() and key.isprintable()):
        detail = f"an Idempotency-Key has at most {LONGEST_KEY} printable ASCII characters; send a UUID, for example"
        raise RequestError(400, "invalid-idempotency-key", detail)
    return key


def options_of(model: OptionsModel, key: str = "", line: int | None = None) -> JobOptions:
    """Return the options of a job. An idempotency key becomes a deduplication of one day."""
    given: dict[str, Any] = {name: value for name, value in model if value is not None}
    for name, make in _OBJECTS.items():
        if name in given:
            given[name] = make(given[name])
    if key:
        if "deduplication" in given:
            raise ValueError("send an Idempotency-Key or the option deduplication, not both")
        number = "" if line is None else f":{line}"
        given["deduplication"] = Deduplication(f"http:{key}{number}", ttl=REPLAY_SECONDS, mode="throttle")
    return JobOptions(**given)


def _backoff(model: Any) -> Backoff:
    make = Backoff.fixed if model.kind == "fixed" else Backoff.exponential
    return make(model.delay, max=model.max, jitter=model.jitter)


def _deduplication(model: Any) -> Deduplication:
    return Deduplication(**model.model_dump(exclude_none=True))


def keep_of(model: Any) -> bool | int | KeepJobs:
    """Return the retention of a model."""
    return model if isinstance(model, bool | int) else KeepJobs(**model.model_dump(exclude_none=True))


_OBJECTS: Final[Mapping[str, Any]] = {
    "backoff": _backoff,
    "deduplication": _deduplication,
    "keep_completed": keep_of,
    "keep_failed": keep_of,
}


def data_of(model: NewJob) -> Any:
    """Return the payload of a job: its data, or the call of a task."""
    if model.args is None and model.kwargs is None:
        return model.data
    if model.data is not None:
        raise ValueError("data: give data, or args and kwargs, not both")
    return {"a": model.args or [], "k": model.kwargs or {}}


# -- many jobs ------------------------------------------------------------------------------------------------------


async def _add_lines(call: ApiCall) -> bytes:
    """Add the jobs of the lines in parts. Return the outcome of each line, in their order."""
    name, key = call.path["queue"], idempotency_key(call)
    queue = await call.ops.queue(name)
    outcomes: list[dict[str, Any]] = []
    async with call.ops.changing("add many", name, reason=call.reason) as change:
        change.count = 0
        async for lines in _parts(call):
            found = await _add_part(queue, lines, key, len(outcomes))
            change.count += sum(1 for each in found if each.get("outcome") == "added")
            outcomes += found
    return b"".join(json.dumps(each, ensure_ascii=False).encode() + b"\n" for each in outcomes)


async def _parts(call: ApiCall) -> AsyncIterator[list[bytes]]:
    request = call.request
    assert request is not None  # noqa: S101 - only called over HTTP
    rest, lines = b"", list[bytes]()
    async for piece in request.stream():
        *whole, rest = (rest + piece).split(b"\n")
        lines += [line for line in whole if line.strip()]
        while len(lines) >= LINES_AT_ONCE:
            yield lines[:LINES_AT_ONCE]
            lines = lines[LINES_AT_ONCE:]
    if rest.strip():
        lines.append(rest)
    if lines:
        yield lines


async def _add_part(queue: Queue[Any, Any], lines: list[bytes], key: str, first: int) -> list[dict[str, Any]]:
    inputs: dict[int, tuple[str, Any, JobOptions]] = {}
    outcomes: list[dict[str, Any]] = [{"line": first + place + 1} for place in range(len(lines))]
    for place, line in enumerate(lines):
        try:
            model = parse(NewJob, parse_json(line), "body")
            options = options_of(model.options, key, first + place)
            inputs[place] = model.name, data_of(model), options
        except Exception as error:  # noqa: BLE001 - each is the outcome of its line
            outcomes[place] |= _refusal(error)
    await _add_inputs(queue, inputs, outcomes)
    return outcomes


async def _add_inputs(
    queue: Queue[Any, Any], inputs: Mapping[int, tuple[str, Any, JobOptions]], outcomes: list[dict[str, Any]]
) -> None:
    # One by one at the same time: they share calls to the server as in `add_bulk`, and each has its own outcome.
    added = await asyncio.gather(*(queue.add(*each) for each in inputs.values()), return_exceptions=True)
    for place, found in zip(inputs, added, strict=True):
        if isinstance(found, BaseException):
            if not isinstance(found, Exception):
                raise found
            outcomes[place] |= _refusal(found)
        else:
            outcomes[place] |= {"id": found.id, "outcome": found.outcome}


def _refusal(error: Exception) -> dict[str, Any]:
    return {"error": cast("dict[str, Any]", json.loads(bytes(problem_of(error).body)))}


ENDPOINTS = (
    ApiRoute(
        method="POST",
        path="/queues/{queue}/jobs",
        name="addJob",
        summary="Add a job, or many as lines of JSON (application/x-ndjson), each with its own outcome.",
        handle=add,
        role="operator",
        body=NewJob,
        ndjson=True,
        result=AddedJob,
        status=201,
        key=True,
    ),
    ApiRoute(
        method="POST",
        path="/queues/{queue}/jobs:wait",
        name="addJobAndWait",
        summary="Add a job, and wait for its result.",
        handle=add_and_wait,
        role="operator",
        payloads=True,
        body=NewAwaitedJob,
        result=EndedJob,
        key=True,
    ),
    ApiRoute(
        method="GET",
        path="/queues/{queue}/jobs/{job}/result",
        name="getResult",
        summary="Return the result of a job, after a wait for its end.",
        handle=result,
        payloads=True,
        query=ResultQuery,
        result=EndedJob,
    ),
    ApiRoute(
        method="POST",
        path="/queues/{queue}/jobs/{job}/signals/{signal}",
        name="sendSignal",
        summary="Send a signal to a job.",
        handle=signal,
        role="operator",
        body=SignalBody,
        result=Done,
        key=True,
    ),
    ApiRoute(
        method="GET",
        path="/queues/{queue}/jobs/{job}/chunks",
        name="streamChunks",
        summary="Stream the chunks of a job as server-sent events. Last-Event-ID resumes.",
        handle=chunks,
        payloads=True,
        media="text/event-stream",
    ),
)
