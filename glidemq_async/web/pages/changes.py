"""The changes that pages offer: the text and fields of each form, the role that it needs, and the call of the core."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypedDict

from glidemq_async.durations import parse_duration
from glidemq_async.ops.core import Ops
from glidemq_async.options.retention import KeepJobs
from glidemq_async.queues.cleaning import CleanState
from glidemq_async.queues.rates import RateLimit
from glidemq_async.web.pages import formats
from glidemq_async.web.pages.alert_changes import ALERT_CHANGES
from glidemq_async.web.pages.change_forms import BadField, ChangeForm, Form, FormField


def seconds(form: Form, name: str) -> float | None:
    """Return a duration of a form in seconds, None if the field is empty. Raises BadField."""
    text = form.get(name, "").strip()
    if not text:
        return None
    if text.replace(".", "", 1).isdigit():
        return float(text)
    found = parse_duration(text)
    if found is None:
        raise BadField(f"{text!r} is no duration; write for example 90s, 10m, 2h or 1d")
    return found


def until(form: Form) -> datetime | None:
    """Return the instant at which a pause ends, None if the field is empty. Raises BadField."""
    length = seconds(form, "for")
    return None if length is None else datetime.now(UTC) + timedelta(seconds=length)


def whole(form: Form, name: str) -> int | None:
    """Return a whole number of a form, None if the field is empty. Raises BadField."""
    text = form.get(name, "").strip()
    if not text:
        return None
    if not text.lstrip("-").isdigit():
        raise BadField(f"{text!r} is no whole number")
    return int(text)


def value(form: Form, name: str) -> object:
    """Return a JSON value of a form, None if the field is empty. Raises BadField."""
    text = form.get(name, "").strip()
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadField(f"the text is not JSON: {error}") from error


def needed(found: Any, label: str) -> Any:
    """Return a value that must be there. Raises BadField."""
    if found is None:
        raise BadField(f"{label} is missing")
    return found


# --- Jobs


async def _retry(ops: Ops, form: Form, reason: str) -> str:
    await ops.retry(form["queue"], form["job"], reason=reason)
    return f"Job {form['job']} waits for its next attempt."


async def _revoke(ops: Ops, form: Form, reason: str) -> str:
    await ops.revoke(form["queue"], form["job"], reason=reason)
    return f"Job {form['job']} is cancelled."


async def _promote(ops: Ops, form: Form, reason: str) -> str:
    await ops.promote(form["queue"], form["job"], reason=reason)
    return f"Job {form['job']} is due now."


async def _delay(ops: Ops, form: Form, reason: str) -> str:
    await ops.delay(form["queue"], form["job"], needed(seconds(form, "delay"), "the delay"), reason=reason)
    return f"Job {form['job']} is delayed."


async def _priority(ops: Ops, form: Form, reason: str) -> str:
    await ops.change_priority(
        form["queue"], form["job"], needed(whole(form, "priority"), "the priority"), reason=reason
    )
    return f"Job {form['job']} has another priority."


async def _move(ops: Ops, form: Form, reason: str) -> str:
    await ops.move(form["queue"], form["job"], needed(form.get("to") or None, "the queue"), reason=reason)
    return f"Job {form['job']} moved to {form['to']}."


async def _delete(ops: Ops, form: Form, reason: str) -> str:
    await ops.delete(form["queue"], form["job"], reason=reason)
    return f"Job {form['job']} is deleted."


async def _edit(ops: Ops, form: Form, reason: str) -> str:
    await ops.edit_and_replay(form["queue"], form["job"], data=value(form, "data"), reason=reason)
    return f"Job {form['job']} has the new data, and waits for its next attempt."


async def _signal(ops: Ops, form: Form, reason: str) -> str:
    name = needed(form.get("name") or None, "the name of the signal")
    await ops.signal(form["queue"], form["job"], name, value(form, "data"), reason=reason)
    return f"Signal {name} was sent to job {form['job']}."


# --- Queues and keys


async def _pause(ops: Ops, form: Form, reason: str) -> str:
    await ops.pause(form["queue"], note=form.get("note", ""), until=until(form), reason=reason)
    return f"Queue {form['queue']} is paused. Jobs that run continue."


async def _resume(ops: Ops, form: Form, reason: str) -> str:
    await ops.resume(form["queue"], reason=reason)
    return f"Queue {form['queue']} is resumed."


# A limit that is sent becomes the operator's, and holds over the code. So only changed limits are sent. The version
# lets the server refuse the form if somebody has changed the limits since it was shown.
async def _limits(ops: Ops, form: Form, reason: str) -> str:
    queue = form["queue"]
    before = await _limits_now(ops, form)
    given = {**_limit_values(form), "max_waiting": whole(form, "waiting")}
    known = {**_limit_values(before), "max_waiting": whole(before, "waiting")}
    changed: Any = {name: limit for name, limit in given.items() if limit != known[name]}
    if not changed:
        raise BadField("no limit has another value than now")
    await ops.set_limits(queue, reason=reason, note=form.get("note", ""), version=form.get("version", ""), **changed)
    return f"The limits of {queue} are set, and stay until an operator releases them."


async def _limits_now(ops: Ops, form: Form) -> Form:
    queue = await ops.queue(form["queue"])
    _, version = await ops.settings_and_version(form["queue"])
    return {
        "version": version,
        "concurrency": _text(await queue.get_global_concurrency()),
        "waiting": _text(await queue.get_max_waiting()),
        **_rate_texts(await queue.get_global_rate_limit()),
    }


async def _key_limits_now(ops: Ops, form: Form) -> Form:
    found = await (await ops.queue(form["queue"])).get_key_limits(form["key"])
    return {"concurrency": _text(found.concurrency), **_rate_texts(found.rate_limit)}


def _rate_texts(limit: RateLimit | None) -> dict[str, str]:
    if limit is None:
        return {"rate": "", "per": ""}
    length = limit.duration.total_seconds() if isinstance(limit.duration, timedelta) else limit.duration
    return {"rate": str(limit.max), "per": f"{length:g}s"}


def _text(number: int | None) -> str:
    return "" if number is None else str(number)


class _LimitValues(TypedDict):
    concurrency: int | None
    rate_limit: RateLimit | None


def _limit_values(form: Form) -> _LimitValues:
    count, window = whole(form, "rate"), seconds(form, "per")
    if (count is None) != (window is None):
        raise BadField("a rate limit needs both the number of jobs and the window")
    limit = None if count is None or window is None else RateLimit(count, window)
    return {"concurrency": whole(form, "concurrency"), "rate_limit": limit}


async def _data_now(ops: Ops, form: Form) -> Form:
    return {"data": formats.pretty((await ops.job(form["queue"], form["job"])).data)}


async def _priority_now(ops: Ops, form: Form) -> Form:
    return {"priority": str((await ops.job(form["queue"], form["job"])).row.priority)}


async def _slots_now(ops: Ops, form: Form) -> Form:
    rows = await ops.workers([form["queue"]])
    return {"concurrency": next((str(each.concurrency) for each in rows if each.name == form["worker"]), "")}


async def _retention(ops: Ops, form: Form, reason: str) -> str:
    keep = KeepJobs(age=seconds(form, "age"), count=whole(form, "count"))
    state = "failed" if form.get("state") == "failed" else "completed"
    note = form.get("note", "")
    if state == "failed":
        await ops.set_retention(form["queue"], failed=keep, note=note, reason=reason)
    else:
        await ops.set_retention(form["queue"], completed=keep, note=note, reason=reason)
    return f"The retention of {state} jobs of {form['queue']} stays until an operator releases it."


async def _pause_key(ops: Ops, form: Form, reason: str) -> str:
    length = needed(seconds(form, "for"), "the duration")
    await ops.pause_key(form["queue"], form["key"], length, reason=reason)
    return f"No job of key {form['key']} starts for now."


async def _resume_key(ops: Ops, form: Form, reason: str) -> str:
    await ops.resume_key(form["queue"], form["key"], reason=reason)
    return f"Key {form['key']} is resumed."


async def _key_limits(ops: Ops, form: Form, reason: str) -> str:
    await ops.set_key_limits(form["queue"], form["key"], reason=reason, **_limit_values(form))
    return f"The limits of key {form['key']} are set."


async def _drain(ops: Ops, form: Form, reason: str) -> str:
    count = await ops.drain(form["queue"], reason=reason)
    return f"{count:,} waiting jobs of {form['queue']} are deleted."


async def _clean(ops: Ops, form: Form, reason: str) -> str:
    older = seconds(form, "older") or 0.0
    state: CleanState = "failed" if form.get("state") == "failed" else "completed"
    removed = await ops.clean(form["queue"], older, state=state, reason=reason)
    return f"{len(removed):,} jobs of {form['queue']} are deleted."


async def _obliterate(ops: Ops, form: Form, reason: str) -> str:
    await ops.obliterate(form["queue"], form.get("ticket", ""), reason=reason)
    return f"Queue {form['queue']} and all of its jobs are deleted."


async def _release(ops: Ops, form: Form, reason: str) -> str:
    key = form.get("key", "") if form.get("scope") == "key" else None
    await ops.release_hold(form["queue"], form["name"], key=key, reason=reason)
    return f"{form['name']} of {form['queue']} comes from the code again."


# --- Schedules, workers, operations


async def _fire(ops: Ops, form: Form, reason: str) -> str:
    await ops.fire_schedule(form["queue"], form["schedule"], reason=reason)
    return f"Schedule {form['schedule']} has added a job."


async def _pause_schedule(ops: Ops, form: Form, reason: str) -> str:
    await ops.pause_schedule(form["queue"], form["schedule"], note=form.get("note", ""), reason=reason)
    return f"Schedule {form['schedule']} is paused."


async def _resume_schedule(ops: Ops, form: Form, reason: str) -> str:
    await ops.resume_schedule(form["queue"], form["schedule"], reason=reason)
    return f"Schedule {form['schedule']} is resumed."


async def _remove_schedule(ops: Ops, form: Form, reason: str) -> str:
    await ops.remove_schedule(form["queue"], form["schedule"], reason=reason)
    return f"Schedule {form['schedule']} is removed."


async def _pause_worker(ops: Ops, form: Form, reason: str) -> str:
    await ops.pause_worker(form["queue"], form["worker"], reason=reason)
    return f"Worker {form['worker']} takes no new jobs."


async def _resume_worker(ops: Ops, form: Form, reason: str) -> str:
    await ops.resume_worker(form["queue"], form["worker"], reason=reason)
    return f"Worker {form['worker']} takes jobs again."


async def _set_concurrency(ops: Ops, form: Form, reason: str) -> str:
    slots = needed(whole(form, "concurrency"), "the number of slots")
    await ops.set_worker_concurrency(form["queue"], form["worker"], slots, reason=reason)
    return f"Worker {form['worker']} gets {slots} slots."


async def _stop_worker(ops: Ops, form: Form, reason: str) -> str:
    await ops.stop_worker(form["queue"], form["worker"], reason=reason)
    return f"Worker {form['worker']} stops. Its running jobs may end within its shutdown timeout."


async def _cancel_operation(ops: Ops, form: Form, reason: str) -> str:
    await ops.cancel_operation(form["operation"], reason=reason)
    return "The operation is cancelled. Jobs that it has changed stay changed."


_NOTE: Final = FormField(
    "note", "Note", "Shown to everybody who looks at the pause.", placeholder="mail provider is down"
)
_FOR: Final = FormField("for", "Ends after", "Empty: until somebody resumes it.", placeholder="30m")
_LIMITS: Final = (
    FormField("concurrency", "Jobs at the same time", "Empty: no limit.", kind="number"),
    FormField("rate", "Jobs in a window", "Empty: no limit.", kind="number", placeholder="100"),
    FormField("per", "Length of the window", placeholder="60s"),
)

CHANGES: Final[Mapping[str, ChangeForm]] = {
    "retry": ChangeForm(
        title="Retry job {job}", text="The job goes back to the waiting jobs of {queue}.", verb="Retry", run=_retry
    ),
    "revoke": ChangeForm(
        title="Cancel job {job}",
        text="A waiting job fails at once. A running job is told to stop.",
        verb="Cancel the job",
        run=_revoke,
        is_dangerous=True,
    ),
    "promote": ChangeForm(
        title="Start job {job} now", text="The job no longer waits for its due time.", verb="Start now", run=_promote
    ),
    "delay": ChangeForm(
        title="Delay job {job}",
        text="The job starts after this time at the earliest.",
        verb="Delay",
        run=_delay,
        fields=(FormField("delay", "Delay", placeholder="10m", required=True),),
    ),
    "change_priority": ChangeForm(
        title="Change the priority of job {job}",
        text="Jobs with a smaller number start first.",
        verb="Change",
        run=_priority,
        fields=(FormField("priority", "Priority", kind="number", value="0", required=True),),
        present=_priority_now,
    ),
    "move": ChangeForm(
        title="Move job {job}",
        text="The job leaves {queue} and waits in another queue.",
        verb="Move",
        run=_move,
        fields=(FormField("to", "To queue", required=True),),
    ),
    "delete": ChangeForm(
        title="Delete job {job}",
        text="The job and its result, log and history are removed. This cannot be undone.",
        verb="Delete",
        run=_delete,
        role="admin",
        is_dangerous=True,
    ),
    "edit_and_replay": ChangeForm(
        title="Edit and replay job {job}",
        text="The job runs again with these arguments. Arguments that you leave out keep their values.",
        verb="Replay",
        run=_edit,
        role="admin",
        fields=(FormField("data", "Data as JSON", kind="area"),),
        present=_data_now,
    ),
    "signal": ChangeForm(
        title="Send a signal to job {job}",
        text="The run continues when it receives the signal that it waits for.",
        verb="Send",
        run=_signal,
        fields=(
            FormField("name", "Name", placeholder="approved", required=True),
            FormField("data", "Data as JSON", "Empty: none.", kind="area"),
        ),
    ),
    "pause": ChangeForm(
        title="Pause {queue}",
        text="No job of the queue starts. Jobs that run continue, and new jobs are still accepted.",
        verb="Pause",
        run=_pause,
        fields=(_NOTE, _FOR),
    ),
    "resume": ChangeForm(title="Resume {queue}", text="Waiting jobs start again.", verb="Resume", run=_resume),
    "set_limits": ChangeForm(
        title="Limits of {queue}",
        text="Your limits hold over deploys until an operator releases them.",
        verb="Set the limits",
        run=_limits,
        role="admin",
        fields=(
            FormField("version", "Version", kind="hidden"),
            *_LIMITS,
            FormField("waiting", "Waiting jobs", "Further adds are refused. Empty: no limit.", kind="number"),
            FormField("note", "Note"),
        ),
        present=_limits_now,
    ),
    "set_retention": ChangeForm(
        title="Retention of {queue}",
        text="Ended jobs are kept as set here, whatever their options say, until an operator releases it.",
        verb="Set the retention",
        run=_retention,
        role="admin",
        fields=(
            FormField("state", "State", kind="choice", value="completed", options=("completed", "failed")),
            FormField("count", "Jobs", "Empty: any number.", kind="number", placeholder="1000"),
            FormField("age", "Age", "Empty: any age.", placeholder="1d"),
            FormField("note", "Note"),
        ),
    ),
    "pause_key": ChangeForm(
        title="Pause key {key}",
        text="No job of this key starts in {queue}. Other keys continue.",
        verb="Pause",
        run=_pause_key,
        fields=(FormField("for", "For", value="10m", required=True),),
    ),
    "resume_key": ChangeForm(
        title="Resume key {key}", text="Jobs of this key start again in {queue}.", verb="Resume", run=_resume_key
    ),
    "set_key_limits": ChangeForm(
        title="Limits of key {key}",
        text="They apply to the jobs of this key in {queue}.",
        verb="Set the limits",
        run=_key_limits,
        role="admin",
        fields=_LIMITS,
        present=_key_limits_now,
    ),
    "drain": ChangeForm(
        title="Delete the waiting jobs of {queue}",
        text="Running and delayed jobs stay. This cannot be undone.",
        verb="Delete waiting jobs",
        run=_drain,
        role="admin",
        is_dangerous=True,
        typed=True,
    ),
    "clean": ChangeForm(
        title="Clean {queue}",
        text="Ended jobs are removed before their retention ends.",
        verb="Clean",
        run=_clean,
        role="admin",
        is_dangerous=True,
        fields=(
            FormField("state", "State", kind="choice", value="completed", options=("completed", "failed")),
            FormField("older", "Older than", value="1d"),
        ),
    ),
    "obliterate": ChangeForm(
        title="Obliterate {queue}",
        text="The queue, all jobs, schedules, limits and events are deleted. This cannot be undone.",
        verb="Obliterate",
        run=_obliterate,
        role="admin",
        is_dangerous=True,
        typed=True,
    ),
    "release_hold": ChangeForm(
        title="Release {setting} of {queue}",
        text="The value that the code declares applies again. Without one there is no limit. A released pause ends.",
        verb="Release",
        run=_release,
        role="admin",
    ),
    "fire_schedule": ChangeForm(
        title="Fire {schedule} now",
        text="One job is added to {queue} now. The next fire time does not change.",
        verb="Fire now",
        run=_fire,
    ),
    "pause_schedule": ChangeForm(
        title="Pause {schedule}",
        text="No job is added until it is resumed, also after a deploy.",
        verb="Pause",
        run=_pause_schedule,
        fields=(_NOTE,),
    ),
    "resume_schedule": ChangeForm(
        title="Resume {schedule}", text="Jobs are added at its fire times again.", verb="Resume", run=_resume_schedule
    ),
    "remove_schedule": ChangeForm(
        title="Remove {schedule}",
        text="Code that declares it adds it again at its next start.",
        verb="Remove",
        run=_remove_schedule,
        role="admin",
        is_dangerous=True,
    ),
    "pause_worker": ChangeForm(
        title="Pause {worker}",
        text="The worker takes no new jobs. Jobs that run continue, and other workers go on.",
        verb="Pause",
        run=_pause_worker,
    ),
    "resume_worker": ChangeForm(
        title="Resume {worker}", text="The worker takes jobs again.", verb="Resume", run=_resume_worker
    ),
    "set_worker_concurrency": ChangeForm(
        title="Resize {worker}",
        text="The number of jobs that it runs at the same time, until it restarts.",
        verb="Resize",
        run=_set_concurrency,
        role="admin",
        fields=(FormField("concurrency", "Slots", kind="number", required=True),),
        present=_slots_now,
    ),
    "stop_worker": ChangeForm(
        title="Stop {worker}",
        text="The worker stops as with SIGTERM: running jobs may end in its shutdown timeout, the others go back.",
        verb="Stop",
        run=_stop_worker,
        role="admin",
        is_dangerous=True,
    ),
    "cancel_operation": ChangeForm(
        title="Cancel the operation",
        text="Jobs that were changed stay changed. The rest is left alone.",
        verb="Cancel the rest",
        run=_cancel_operation,
    ),
    **ALERT_CHANGES,
}
