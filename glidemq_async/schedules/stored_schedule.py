"""The stored form of a schedule. Only clients read it; the server compares it and stores it."""

from __future__ import annotations

from typing import TypedDict, cast

import msgpack

from glidemq_async.durations import from_ms, instant_to_ms
from glidemq_async.errors import SerializationError
from glidemq_async.schedules.schedule import CATCH_UP, Missed, Overlap, Schedule, interval_ms, jitter_ms

__all__ = ["read_schedule", "schedule_form"]


class _Optional(TypedDict, total=False):
    c: str
    z: str
    e: int
    s: int
    f: int
    n: int
    i: bool
    d: bool
    j: int


class _Form(_Optional):
    a: int
    m: Missed
    u: int
    o: Overlap


def schedule_form(schedule: Schedule, anchor: int) -> bytes:
    """Return the stored form of a schedule; `anchor` is the time of the first upsert."""
    form: _Form = {"a": anchor, "m": schedule.missed, "u": schedule.catch_up or CATCH_UP, "o": schedule.overlap}
    if schedule.cron is not None:
        form["c"], form["z"] = schedule.cron, schedule.tz or "UTC"
    if (every := interval_ms(schedule)) is not None:
        form["e"] = every
    if schedule.start is not None:
        form["s"] = instant_to_ms("start", schedule.start)
    if schedule.end is not None:
        form["f"] = instant_to_ms("end", schedule.end)
    if schedule.limit is not None:
        form["n"] = schedule.limit
    if schedule.immediately:
        form["i"] = True
    if schedule.after_completion:
        form["d"] = True
    if jitter := jitter_ms(schedule):
        form["j"] = jitter
    return msgpack.packb(form)


def read_schedule(data: bytes) -> tuple[Schedule, int]:
    """Decode the result of `schedule_form`: the schedule and the anchor. Raises SerializationError for other bytes."""
    try:
        form = cast("_Form", msgpack.unpackb(data))
        schedule = Schedule(
            cron=form.get("c"),
            every=form["e"] / 1000 if "e" in form else None,
            tz=form.get("z") if "c" in form else None,
            start=from_ms(form["s"]) if "s" in form else None,
            end=from_ms(form["f"]) if "f" in form else None,
            limit=form.get("n"),
            missed=form["m"],
            catch_up=form["u"] if form["m"] == "fire-all" else None,
            overlap=form["o"],
            immediately=form.get("i", False),
            after_completion=form.get("d", False),
            jitter=form["j"] / 1000 if "j" in form else None,
        )
        return schedule, form["a"]
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise SerializationError(f"the stored schedule {data[:40]!r} is invalid: {error}") from error
