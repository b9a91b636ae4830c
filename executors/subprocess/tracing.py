"""The trace of a run, taken along into its process: spans that are made there have the span of the run as parent.

Only where OpenTelemetry is in use on both sides; it is never imported for this.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final, TypeAlias

Trace: TypeAlias = dict[str, str] | None
"""What the program's propagator writes: traceparent, baggage and the like; None: nothing."""

_FLUSH_MILLISECONDS: Final = 300
"""Idle processes of a worker that stops have half a second to end."""

_log = logging.getLogger("glidemq_async.executors.subprocess")


def current_trace() -> Trace:
    """Return the trace of this context as texts."""
    if "opentelemetry.trace" not in sys.modules:
        return None
    try:
        from opentelemetry import propagate

        found: dict[str, str] = {}
        propagate.inject(found)
    except Exception:  # noqa: BLE001 - telemetry must not fail a job
        _log.exception("the trace of a job is not known in its process")
        return None
    return found or None


def adopt_trace(trace: Trace) -> None:
    """Make the trace that of this context, if the code of the job has imported OpenTelemetry."""
    if trace is None or "opentelemetry.trace" not in sys.modules:
        return
    try:
        from opentelemetry import context, propagate

        context.attach(propagate.extract(trace, context=context.Context()))
    except Exception:  # noqa: BLE001 - telemetry must not fail a job
        _log.exception("the trace of a job is not known in its process")


def flush_spans() -> None:
    """Have the spans of this process exported before it ends; it runs no exit functions."""
    if "opentelemetry.sdk.trace" not in sys.modules:
        return
    try:
        from opentelemetry import trace

        provider: Any = trace.get_tracer_provider()
        if hasattr(provider, "force_flush"):
            provider.force_flush(_FLUSH_MILLISECONDS)
    except Exception:  # noqa: BLE001 - telemetry must not keep a process from ending
        _log.exception("the spans of a process are not exported")
