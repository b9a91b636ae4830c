"""What an error of Spark means for its job: cancelled, never to succeed, or worth another attempt.

The texts of Java's errors are asked from the JVM, so they are read here, in the driver thread: the worker's event loop
must not wait for a JVM, least of all for one that has gone.
"""

# py4j has no annotations, those of pyspark are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from pyspark.errors import AnalysisException, PySparkException

from glidemq_async.errors import ControlFlow, GlideMQError, UnrecoverableError
from glidemq_async.stored.failure import MESSAGE_LIMIT, TRACEBACK_LIMIT, Failure

CANCELLED: Final = frozenset({"SPARK_JOB_CANCELLED", "OPERATION_CANCELED", "OPERATION_CANCELLED"})
"""Conditions of Spark that say: somebody cancelled this work."""
MOST_CAUSES: Final = 16


def failure_in_thread(error: BaseException) -> BaseException:
    """Return what a run raises for an error of its function; to be called in the driver thread.

    An error of analysis or parsing, and one that says that Spark's work was cancelled, becomes an UnrecoverableError
    that is stored under its own name: another attempt would end the same way, or against somebody's will. All others
    stay what they are.
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
        final = UnrecoverableError(f"the work was cancelled in Spark, not by its queue: {described.message}")
        final.__cause__ = error
    with suppress(AttributeError):  # where an exception allows no attributes, its own text is asked for
        final.remote_failure = described  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    return final


def is_cancelled(error: BaseException) -> bool:
    """Return whether an error says that Spark's work was cancelled."""
    return any(condition in CANCELLED for condition in _conditions(error))


def description(error: BaseException) -> Failure | None:
    """Return the texts of an error of Spark, None for any other; never raises."""
    java = getattr(error, "java_exception", None)
    if java is None and not isinstance(error, PySparkException):
        return None
    name, message = type(error).__name__, ""
    with suppress(Exception):
        if java is not None:
            name, message = java.getClass().getSimpleName(), java.getMessage() or ""
        else:
            # Only `str` of it holds the JVM's stack trace, if that is switched on: it is in the traceback.
            message = getattr(error, "_desc", None) or str(error)
    trace = ""
    with suppress(Exception):
        trace = "".join(traceback.format_exception(error))
    # What follows is the stack of the driver's scheduler, which is the same for every job.
    message = message.partition("\n\nDriver stacktrace:")[0].strip()
    if len(trace) > TRACEBACK_LIMIT:
        trace = trace[: TRACEBACK_LIMIT // 2] + "\n[…]\n" + trace[-TRACEBACK_LIMIT // 2 :]
    texts = (text.encode("utf-8", "replace").decode() for text in (name, message[:MESSAGE_LIMIT], trace))
    return Failure(*texts)


def _conditions(error: BaseException) -> Iterator[str]:
    """The names that Spark gives to what happened, outermost first."""
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
        except Exception:  # noqa: BLE001 - a JVM that cannot be asked tells no more
            return
