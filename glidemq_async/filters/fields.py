"""The fields that a filter can name, and how each one reads a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, TypeAlias

from glidemq_async.errors import FilterError, SerializationError
from glidemq_async.filters.grammar import Term
from glidemq_async.filters.values import (
    at_path,
    choice_test,
    number_test,
    part_test,
    payload_test,
    text_test,
    time_test,
    version_test,
)
from glidemq_async.jobs.job import Job
from glidemq_async.stored.call import TaskParameters, named_call
from glidemq_async.stored.dead_letter import CAUSES
from glidemq_async.stored.record import STATES

AnyJob: TypeAlias = Job[Any, Any]


@dataclass(frozen=True, slots=True)
class Present:
    """The context of a filter: the server's time, and the parameters of the tasks."""

    now: datetime
    tasks: TaskParameters


Test: TypeAlias = Callable[[AnyJob, Present], bool]


class Field(NamedTuple):
    """A field of filters. `compile` makes the test of a term."""

    compile: Callable[[Term], Test]
    help: str
    payload: bool = False
    """True if the test needs a payload of the job."""


def compiled(term: Term) -> Test:
    """Return the test of a term. Raises FilterError for an unknown field and for a value that does not fit."""
    field = field_of(term)
    if term.path and not field.payload:
        raise FilterError(f"{term.field} has no parts; only data and result have them", term.position)
    test = field.compile(term)
    return (lambda job, present: not test(job, present)) if term.negated else test


def field_of(term: Term) -> Field:
    """Return the field of a term. Raises FilterError for an unknown one."""
    if not term.field:
        return _WORD
    field = FIELDS.get(term.field)
    if field is None:
        close = get_close_matches(term.field, FIELDS, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"the fields are {', '.join(FIELDS)}."
        raise FilterError(
            f"there is no field {term.field!r}; {hint} Write quotation marks around a text with a colon", term.position
        )
    return field


def _text(read: Callable[[AnyJob], str | None]) -> Callable[[Term], Test]:
    def make(term: Term) -> Test:
        test = text_test(term)
        return lambda job, _: (text := read(job)) is not None and test(text)

    return make


def _number(read: Callable[[AnyJob], float]) -> Callable[[Term], Test]:
    def make(term: Term) -> Test:
        test = number_test(term)
        return lambda job, _: test(read(job))

    return make


def _time(read: Callable[[AnyJob], datetime | None], *, ahead: bool = False) -> Callable[[Term], Test]:
    def make(term: Term) -> Test:
        test = time_test(term, ahead=ahead)
        return lambda job, present: (instant := read(job)) is not None and test(instant, present.now)

    return make


def _payload(read: Callable[[AnyJob, Present], Iterable[object]]) -> Callable[[Term], Test]:
    def make(term: Term) -> Test:
        test = payload_test(term)

        def matches(job: AnyJob, present: Present) -> bool:
            try:
                payloads = read(job, present)
            except SerializationError:  # sealed by codecs, or damaged
                return False
            return any(test(found) for payload in payloads for found in at_path(payload, term.path))

        return matches

    return make


def _data(job: AnyJob, present: Present) -> tuple[object, ...]:
    stored = job.data
    named = named_call(stored, present.tasks.get(job.name))
    # Other programs may use the form of a stored call for their own data.
    return (stored,) if named is stored else (named, stored)


def _state(term: Term) -> Test:
    test = choice_test(term, STATES)
    return lambda job, _: test(job.state)


def _cause(term: Term) -> Test:
    test = choice_test(term, sorted(CAUSES))
    return lambda job, _: job.failure_cause is not None and test(job.failure_cause)


def _error(term: Term) -> Test:
    test = part_test(term)
    return lambda job, _: job.failed_reason is not None and test(job.failed_reason)


def _version(term: Term) -> Test:
    test = version_test(term)
    return lambda job, _: job.worker_version is not None and test(job.worker_version)


def _word(term: Term) -> Test:
    test = part_test(term)
    return lambda job, _: any(test(text) for text in (job.id, job.name, job.key or "", job.failed_reason or ""))


_WORD: Final = Field(_word, "a part of the id, the name, the key or the error")

FIELDS: Final[Mapping[str, Field]] = {
    "state": Field(_state, "the state"),
    "id": Field(_text(lambda job: job.id), "the id"),
    "name": Field(_text(lambda job: job.name), "the name of the job, or of its task"),
    "queue": Field(_text(lambda job: job.queue), "the queue"),
    "key": Field(_text(lambda job: job.key), "the ordering key"),
    "error": Field(_error, "a part of the reason of a failure"),
    "group": Field(_text(lambda job: job.failure_group), "the fingerprint of the group of the last failure"),
    "version": Field(_version, "the version of the worker of the last attempt, if an attempt has failed"),
    "cause": Field(_cause, "the cause of a permanent failure"),
    "attempts": Field(_number(lambda job: job.attempts_made), "the number of attempts"),
    "stalls": Field(_number(lambda job: job.stalled_count), "the number of runs that lost their lease"),
    "priority": Field(_number(lambda job: job.priority), "the priority"),
    "added": Field(_time(lambda job: job.created_at), "the time of the add"),
    "started": Field(_time(lambda job: job.processed_at), "the start of the last run"),
    "ended": Field(_time(lambda job: job.finished_at), "the end"),
    "due": Field(_time(lambda job: job.due_at, ahead=True), "the time at which a delayed job starts"),
    "data": Field(_payload(_data), "a part of the data", payload=True),
    "result": Field(_payload(lambda job, _: (job.return_value,)), "a part of the result", payload=True),
}
