"""Classification of Spark errors: cancelled, permanent, or worth another attempt.

The texts of Java errors are calls into the JVM. They are read here, in the driver thread, because the event loop of the
worker must not wait for a JVM, which may even be dead.
"""

# py4j has no annotations, and the annotations of pyspark are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException

from glidemq_async.errors import ControlFlow, GlideMQError, UnrecoverableError
from glidemq_async.stored.failure import MESSAGE_LIMIT, TRACEBACK_LIMIT, Failure
from glidemq_async.stored.failure_places import place_of

CANCELLED: Final = frozenset({"SPARK_JOB_CANCELLED", "OPERATION_CANCELED", "OPERATION_CANCELLED"})
"""Spark's error conditions for cancelled work."""
MOST_CAUSES: Final = 16


def failure_in_thread(error: BaseException) -> BaseException:
    """Return the exception that a run raises for an error of its function. Call this in the driver thread.

    Errors of analysis or parsing and errors of cancelled work become an UnrecoverableError, which is stored under the
    name of the original error. Another attempt would fail in the same way, or would run work that a user has cancelled.
    Other errors are returned unchanged.
    """
    if isinstance(error, GlideMQError | ControlFlow):
        return error
    described = description(error)
    if described is None:
        return error
    final: BaseException = error
    if isinstance(error, AnalysisException):
        final = UnrecoverableError(f"{described.error_type}: {described.message}")
        final.__cause__ = error
    elif is_cancelled(error):
        final = UnrecoverableError(f"the work was cancelled in Spark and not through its queue: {described.message}")
        final.__cause__ = error
    with suppress(AttributeError):  # if the exception allows no attributes, the worker uses its `str`
        final.remote_failure = described  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    return final


def is_cancelled(error: BaseException) -> bool:
    """Return True if an error means that Spark's work was cancelled."""
    return any(condition in CANCELLED for condition in _conditions(error))


def description(error: BaseException) -> Failure | None:
    """Return name, message and traceback of a Spark error, or None for any other error. Never raises."""
    java = getattr(error, "java_exception", None)
    if java is None and not isinstance(error, PySparkException):
        return None
    name, message = _name_and_message(error, java)
    trace = ""
    with suppress(Exception):
        trace = "".join(traceback.format_exception(error))
    # The rest is the stack of the driver's scheduler, which is the same for every job.
    message = message.partition("\n\nDriver stacktrace:")[0].strip()
    if len(trace) > TRACEBACK_LIMIT:
        trace = trace[: TRACEBACK_LIMIT // 2] + "\n[…]\n" + trace[-TRACEBACK_LIMIT // 2 :]
    texts = (name, message[:MESSAGE_LIMIT], trace, place_of(error))
    return Failure(*(text.encode("utf-8", "replace").decode() for text in texts))


def _conditions(error: BaseException) -> Iterator[str]:
    """Yield the error conditions of an error and of its causes, outermost first."""
    with suppress(Exception):
        if isinstance(error, PySparkException) and (condition := error.getCondition()):
            yield condition
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    for _ in range(MOST_CAUSES):
        if java is None:
            return
        with suppress(Exception):
            yield str(java.getCondition())
        try:
            java = java.getCause()
        except Exception:  # noqa: BLE001 - the JVM does not answer
            return


def _name_and_message(error: BaseException, java: Any) -> tuple[str, str]:
    with suppress(Exception):
        if java is not None:
            return java.getClass().getSimpleName(), java.getMessage() or ""
        # Its `str` may also contain the JVM's stack trace, which is in the traceback already.
        return type(error).__name__, getattr(error, "_desc", None) or str(error)
    return type(error).__name__, ""
