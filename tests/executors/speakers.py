"""The handlers of the tests of logs and spans. A child imports this file by its name."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import threading
import time
from typing import Any, cast

from glidemq_async import Job

AnyJob = Job[Any, Any]
log = logging.getLogger(__name__)
started = logging.getLogger("speakers.started")


class Odd:
    """A value that cannot be sent to another process."""

    def __repr__(self) -> str:
        return "<odd>"


def introduce() -> None:
    started.warning("set up in %d", os.getpid())


def by_name(job: AnyJob) -> Any:
    """Run the handler with the job's name."""
    return globals()[job.name](job)


def speak(job: AnyJob) -> int:
    """Log at each level, with values, an exception and extra fields."""
    log.debug("too quiet")
    log.info("%s of %d", "one", 2, extra={"tenant": "acme", "odd": Odd(), "numbers": [1, 2], "large": 2**80})
    try:
        raise KeyError("missing")
    except KeyError:
        log.exception("went wrong", stack_info=True)
    logging.getLogger("speakers.never.seen").log(35, "between \udcff levels")
    return os.getpid()


async def speak_later(job: AnyJob) -> None:
    log.info("from a coroutine")


def speak_of_levels(job: AnyJob) -> list[bool]:
    """Check that the levels are known here: records below the level are not even created."""
    return [log.isEnabledFor(level) for level in (logging.DEBUG, logging.INFO, logging.WARNING)]


def speak_and_die(job: AnyJob) -> None:
    log.error("the last words")
    os._exit(3)


def speak_at_length(job: AnyJob) -> None:
    log.info("%s", "x" * 1_000_000, extra={"long": "y" * 1_000_000})


def chatter(job: AnyJob) -> float:
    """Log as fast as possible."""
    began = time.monotonic()
    for number in range(job.data):
        log.info("chatter %d", number)
    return time.monotonic() - began


def leave_a_speaker(job: AnyJob) -> None:
    """Leave a thread behind that logs when the next job runs."""

    def wait_and_speak() -> None:
        resume_thread.wait(30)
        log.info("from who was left behind")
        spoken.set()

    threading.Thread(target=wait_and_speak, daemon=True).start()


def let_it_speak(job: AnyJob) -> bool:
    resume_thread.set()
    return spoken.wait(30)


resume_thread = threading.Event()
spoken = threading.Event()


def leave_a_child_that_continues(job: AnyJob) -> None:
    """Leave a thread behind that logs repeatedly, even while no job runs."""

    def speak_on() -> None:
        while True:
            log.info("idle words")
            time.sleep(0.01)

    threading.Thread(target=speak_on, daemon=True).start()


def claim_to_be_others(job: AnyJob) -> None:
    """Send the worker records that no handler of the library would send: long names, reserved fields, invalid
    values.
    """
    [forwarding] = logging.getLogger().handlers
    link = cast("Any", forwarding).link
    for number in range(50):
        link.send("record", job.id, {"name": f"made.up.{number}", "levelno": 40, "msg": "made up", "exc_info": "no"})
    for nonsense in (7, {}, {"levelno": "high"}, {"levelno": 2**60, "name": b"\xff", "msg": [1]}):
        link.send("record", job.id, nonsense)
    link.send("record")


def flood(job: AnyJob) -> float:
    """Send records without the handler that counts them."""
    [forwarding] = logging.getLogger().handlers
    link, began = cast("Any", forwarding).link, time.monotonic()
    for _ in range(job.data):
        link.send("record", job.id, {"name": "flood", "levelno": 40, "msg": "flood"})
    return time.monotonic() - began


def log_without_a_reader(job: AnyJob) -> None:
    """Log many lines, then report the time for it through a named pipe."""
    began = time.monotonic()
    for _ in range(300):
        log.info("%s", "x" * 8_000)
    with open(job.data, "w", encoding="utf-8") as pipe:
        pipe.write(str(time.monotonic() - began))


def silent_but_logging(job: AnyJob) -> None:
    """Log without a call to the job."""
    while True:
        log.info("still here")
        time.sleep(0.02)


def span_in_the_child(job: AnyJob) -> dict[str, Any]:
    """Return the state of OpenTelemetry here: the current span, its baggage, and the parent of a new span."""
    from opentelemetry import baggage, trace
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider

    outer = trace.get_current_span().get_span_context()
    with TracerProvider(shutdown_on_exit=False).get_tracer("child").start_as_current_span("inner") as span:
        inner = span.get_span_context()
        log.warning("inside a span")
    assert isinstance(span, ReadableSpan)
    assert span.parent is not None
    return {
        "trace": trace.format_trace_id(outer.trace_id),
        "span": trace.format_span_id(outer.span_id),
        "inner": trace.format_span_id(inner.span_id),
        "parent": trace.format_span_id(span.parent.span_id),
        "baggage": dict(baggage.get_all()),
    }


async def span_in_a_coroutine(job: AnyJob) -> dict[str, Any]:
    return span_in_the_child(job)


def use_telemetry() -> None:
    importlib.import_module("opentelemetry.sdk.trace")


def modules(job: AnyJob) -> list[str]:
    return sorted(name for name in sys.modules if name.startswith("opentelemetry"))


def current_span(job: AnyJob) -> bool:
    from opentelemetry import trace

    return trace.get_current_span().get_span_context().is_valid


def export_late(job: AnyJob) -> None:
    """Make a span that is exported some time later. Its export takes the seconds in the data."""
    from opentelemetry import trace
    from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter

    path, seconds = job.data
    out = open(path, "a", encoding="utf-8")  # noqa: SIM115 - it is written to at the end of the process

    def text_of(span: ReadableSpan) -> str:
        time.sleep(seconds)
        return f"{span.name}\n"

    provider = TracerProvider()
    exporter = ConsoleSpanExporter(out=out, formatter=text_of)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=60_000))
    trace.set_tracer_provider(provider)
    trace.get_tracer("child").start_span("inner").end()


def set_up_logging() -> None:
    """Write this module's records to stderr, and nowhere else."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("mine: %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
