"""Passes exceptions to another process: their types, texts and control-flow meaning."""

from __future__ import annotations

import builtins
from typing import Any, Final, TypeAlias, cast

from glidemq_async import errors
from glidemq_async.errors import (
    GlideMQError,
    HandlerError,
    PayloadTooLarge,
    Postponed,
    RateLimited,
    RetryLater,
    SerializationError,
    Suspended,
    UnrecoverableError,
)
from glidemq_async.options.retry_rules import lineage_of
from glidemq_async.options.validation import reason as check_reason
from glidemq_async.stored.failure import MESSAGE_LIMIT, TRACEBACK_LIMIT, Failure, failure_of
from glidemq_async.stored.failure_places import LONGEST_PLACE
from glidemq_async.stored.names import check_id

ErrorValues: TypeAlias = list[Any]

_LONGEST_TRACEBACK: Final = TRACEBACK_LIMIT + 16
"""A shortened traceback also has a mark in its middle."""
_MOST_TYPES: Final = 200
"""Maximum number of base types of an exception; the rest of the list is ignored."""
#: Types whose derived classes keep their meaning.
_MEANINGS: tuple[type[GlideMQError], ...] = (
    UnrecoverableError,
    RetryLater,
    RateLimited,
    Postponed,
    Suspended,
)


def error_to_values(error: BaseException) -> ErrorValues:
    """Return an exception as plain values."""
    meaning = next((kind for kind in _MEANINGS if isinstance(error, kind)), type(error))
    shown = _shown(error)
    return [
        meaning.__module__,
        meaning.__name__,
        _arguments(error),
        list(failure_of(shown)),
        lineage_of(type(shown)),
    ]


def error_from_values(message: ErrorValues) -> BaseException:
    """Return the exception in its own type if that is built in or of this library, otherwise as a HandlerError.

    In both cases it is stored and shown with the type, text and traceback of the original.
    """
    module, name, arguments, texts, lineage = message
    failure = _failure(texts)
    error = _built(str(module), str(name), arguments, failure)
    error.remote_lineage = _lineage(lineage)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    error.remote_failure = failure  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    if failure.traceback:
        error.add_note(f"In the process of the job:\n{failure.traceback.rstrip()}")
    return error


def _suspended(reason: object, timeout_ms: object, signals: object, single: object, step: object) -> Suspended:
    """Return the error of a suspension. Raises TypeError for values that a suspension cannot have."""
    names = None if signals is None else tuple(check_id("signal name", name) for name in cast("list[str]", signals))
    if timeout_ms is not None and (not isinstance(timeout_ms, int) or timeout_ms < 0):
        raise TypeError("a timeout is a number of milliseconds")
    text = "" if reason == "" else check_reason("reason", reason)
    named = "" if step == "" else check_id("step", cast("str", step))
    return Suspended(text, timeout_ms=timeout_ms, signals=names, single=bool(single), step=named)


def _failure(texts: object) -> Failure:
    """Return the texts of an error from another process, with the same limits as an error of this process.

    Raises TypeError for other values, ValueError for a wrong number of texts.
    """
    error_type, message, traceback, place = cast("list[object]", texts)
    if not (isinstance(error_type, str) and isinstance(message, str) and isinstance(traceback, str)):
        raise TypeError("an error is described by texts")
    if not isinstance(place, str):
        raise TypeError("the place of an error is a text")
    bounded = (
        error_type[:MESSAGE_LIMIT],
        message[:MESSAGE_LIMIT],
        traceback[:_LONGEST_TRACEBACK],
        place[:LONGEST_PLACE],
    )
    return Failure(*(text.encode("utf-8", "replace").decode() for text in bounded))


def _lineage(names: object) -> frozenset[str]:
    """Return the names of an exception's types. Raises TypeError for other values."""
    if not isinstance(names, list):
        raise TypeError("a lineage is a list of names")
    listed = cast("list[object]", names)[:_MOST_TYPES]
    found = [name[:MESSAGE_LIMIT] for name in listed if isinstance(name, str)]
    if len(found) != len(listed):
        raise TypeError("a lineage is a list of names")
    return frozenset(found)


def _shown(error: BaseException) -> BaseException:
    """Return the exception that is the failure of the job."""
    counts = isinstance(error, RetryLater) and error.count
    return error.__cause__ or error if counts else error


def _arguments(error: BaseException) -> list[Any]:
    if isinstance(error, RetryLater):
        return [error.delay, error.count]
    if isinstance(error, RateLimited):
        return [error.delay]
    if isinstance(error, Postponed):
        return [error.milliseconds, error.is_instant, error.step]
    if isinstance(error, Suspended):
        return [error.reason, error.timeout_ms, error.signals, error.single, error.step]
    if isinstance(error, PayloadTooLarge):
        return [error.what, error.size, error.limit]
    if isinstance(error, SerializationError):
        return [str(error), error.path]
    return []


def _built(module: str, name: str, arguments: list[Any], failure: Failure) -> BaseException:
    # The names come from a process that may be hostile. Only two modules are searched, and nothing is imported, so a
    # child cannot make the worker call a class of its choice.
    source: object = errors if module == errors.__name__ else builtins if module == builtins.__name__ else None
    kind = getattr(source, name, None)
    # A BaseException that is not an Exception would end programs and tasks. Here it is only a handler's failure.
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            if kind is RetryLater:
                return RetryLater(arguments[0], count=arguments[1])
            if kind is Postponed:
                return Postponed(arguments[0], is_instant=arguments[1], step=arguments[2])
            if kind is Suspended:
                return _suspended(*arguments)
            return kind(*(arguments or [failure.message]))
        except Exception:  # noqa: BLE001 - some types cannot be built from a text, such as UnicodeDecodeError
            return HandlerError(failure.error_type, failure.message, failure.traceback)
    return HandlerError(failure.error_type, failure.message, failure.traceback)
