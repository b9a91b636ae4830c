"""The forms of changes that pages offer: the text and fields of each, and the arguments that its fields become."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from glidemq_async.ops.change_kinds import changed_count, make_change
from glidemq_async.ops.core import Ops
from glidemq_async.options.retention import KeepJobs
from glidemq_async.web.pages import formats
from glidemq_async.web.pages.alert_changes import ALERT_CHANGES
from glidemq_async.web.pages.change_forms import BadField, ChangeForm, Form, FormField
from glidemq_async.web.pages.form_values import (
    limit_values,
    needed,
    rate_texts,
    seconds,
    shown_number,
    until,
    value,
    whole,
)

_NOTHING: Final = "nothing"
"""The choice of a form for events without content."""
_BESIDE: Final = frozenset({"note", "version"})
"""Arguments of a change of limits that are not limits themselves."""


async def run_change(ops: Ops, name: str, form: Form) -> str:
    """Make the change of a form. Return a sentence about what has happened."""
    change, reason = CHANGES[name], form.get("reason", "")
    if change.run is not None:
        return await change.run(ops, form, reason)
    found = await make_change(ops, name, form, await _arguments(ops, change, form), reason)
    count = changed_count(found)
    return change.done.format_map({**form, "count": "" if count is None else f"{count:,}"})


async def _arguments(ops: Ops, change: ChangeForm, form: Form) -> Mapping[str, Any]:
    given = change.arguments(form)
    if not change.changed_only or change.present is None:
        return given
    before = change.arguments(await change.present(ops, form))
    changed = {name: argument for name, argument in given.items() if name in _BESIDE or argument != before[name]}
    if not changed.keys() - _BESIDE:
        raise BadField("no field was changed")
    return changed


# A limit that is sent is held by the operator, and overrides the code. Therefore only changed limits are sent. The form
# contains the version of the limits that it shows. The server refuses the form if the limits have another version now.
def _limits(form: Form) -> Mapping[str, Any]:
    limits = {**limit_values(form), "max_waiting": whole(form, "waiting")}
    return {**limits, "note": form.get("note", ""), "version": form.get("version", "")}


def _key_limits(form: Form) -> Mapping[str, Any]:
    return {**limit_values(form)}


def _note(form: Form) -> Mapping[str, Any]:
    return {"note": form.get("note", "")}


def _retention(form: Form) -> Mapping[str, Any]:
    keep = KeepJobs(age=seconds(form, "age"), count=whole(form, "count"))
    return {"failed" if form.get("state") == "failed" else "completed": keep, "note": form.get("note", "")}


def _event_rules(form: Form) -> Mapping[str, Any]:
    kinds = form.get("off", "").replace(",", " ").split()
    content = form.get("content", _NOTHING)
    return {
        "max_events": whole(form, "kept"),
        "off": "all" if kinds == ["all"] else tuple(sorted(kinds)) or None,
        "progress_interval": seconds(form, "interval"),
        "content": None if content == _NOTHING else content,
        "note": form.get("note", ""),
    }


def _clean(form: Form) -> Mapping[str, Any]:
    state = "failed" if form.get("state") == "failed" else "completed"
    return {"grace": seconds(form, "older") or 0.0, "state": state}


def _release(form: Form) -> Mapping[str, Any]:
    return {"name": form["name"], "key": form.get("key", "") if form.get("scope") == "key" else None}


def _signal(form: Form) -> Mapping[str, Any]:
    return {"name": needed(form.get("name") or None, "the name of the signal"), "data": value(form, "data")}


def _slots(form: Form) -> Mapping[str, Any]:
    return {"concurrency": needed(whole(form, "concurrency"), "the number of slots")}


async def _limits_now(ops: Ops, form: Form) -> Form:
    queue = await ops.queue(form["queue"])
    _, version = await ops.settings_and_version(form["queue"])
    return {
        "version": version,
        "concurrency": shown_number(await queue.get_global_concurrency()),
        "waiting": shown_number(await queue.get_max_waiting()),
        **rate_texts(await queue.get_global_rate_limit()),
    }


async def _event_rules_now(ops: Ops, form: Form) -> Form:
    rules = await (await ops.queue(form["queue"])).get_event_rules()
    return {
        "kept": shown_number(rules.max_events),
        "off": rules.off if isinstance(rules.off, str) else " ".join(rules.off or ()),
        "interval": "" if rules.progress_interval is None else f"{rules.progress_interval:g}s",
        "content": rules.content or _NOTHING,
    }


async def _key_limits_now(ops: Ops, form: Form) -> Form:
    found = await (await ops.queue(form["queue"])).get_key_limits(form["key"])
    return {"concurrency": shown_number(found.concurrency), **rate_texts(found.rate_limit)}


async def _data_now(ops: Ops, form: Form) -> Form:
    return {"data": formats.pretty((await ops.job(form["queue"], form["job"])).data)}


async def _priority_now(ops: Ops, form: Form) -> Form:
    return {"priority": str((await ops.job(form["queue"], form["job"])).row.priority)}


async def _slots_now(ops: Ops, form: Form) -> Form:
    rows = await ops.workers([form["queue"]])
    return {"concurrency": next((str(each.concurrency) for each in rows if each.name == form["worker"]), "")}


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
        title="Retry job {job}",
        text="The job goes back to the waiting jobs of {queue}.",
        verb="Retry",
        done="Job {job} waits for its next attempt.",
    ),
    "revoke": ChangeForm(
        title="Cancel job {job}",
        text="A waiting job fails immediately. A running job is asked to stop.",
        verb="Cancel the job",
        done="Job {job} is cancelled.",
    ),
    "promote": ChangeForm(
        title="Start job {job} now",
        text="The job no longer waits for its due time.",
        verb="Start now",
        done="Job {job} is due now.",
    ),
    "delay": ChangeForm(
        title="Delay job {job}",
        text="The job starts after this time at the earliest.",
        verb="Delay",
        arguments=lambda form: {"delay": needed(seconds(form, "delay"), "the delay")},
        done="Job {job} is delayed.",
        fields=(FormField("delay", "Delay", placeholder="10m", required=True),),
    ),
    "change_priority": ChangeForm(
        title="Change the priority of job {job}",
        text="Jobs with a smaller number start first.",
        verb="Change",
        arguments=lambda form: {"priority": needed(whole(form, "priority"), "the priority")},
        done="The priority of job {job} is changed.",
        fields=(FormField("priority", "Priority", kind="number", value="0", required=True),),
        present=_priority_now,
    ),
    "move": ChangeForm(
        title="Move job {job}",
        text="The job leaves {queue} and waits in another queue.",
        verb="Move",
        arguments=lambda form: {"to": needed(form.get("to") or None, "the queue")},
        done="Job {job} moved to {to}.",
        fields=(FormField("to", "To queue", required=True),),
    ),
    "delete": ChangeForm(
        title="Delete job {job}",
        text="The job and its result, log and history are removed. This cannot be undone.",
        verb="Delete",
        done="Job {job} is deleted.",
    ),
    "edit_and_replay": ChangeForm(
        title="Edit and replay job {job}",
        text="The job runs again with these arguments. Arguments that you leave out keep their values.",
        verb="Replay",
        arguments=lambda form: {"data": value(form, "data")},
        done="Job {job} has the new data, and waits for its next attempt.",
        fields=(FormField("data", "Data as JSON", kind="area"),),
        present=_data_now,
    ),
    "signal": ChangeForm(
        title="Send a signal to job {job}",
        text="The run continues when it receives the signal that it waits for.",
        verb="Send",
        arguments=_signal,
        done="Signal {name} was sent to job {job}.",
        fields=(
            FormField("name", "Name", placeholder="approved", required=True),
            FormField("data", "Data as JSON", "Empty: none.", kind="area"),
        ),
    ),
    "pause": ChangeForm(
        title="Pause {queue}",
        text="No job of the queue starts. Jobs that run continue, and new jobs are still accepted.",
        verb="Pause",
        arguments=lambda form: {**_note(form), "until": until(form)},
        done="Queue {queue} is paused. Jobs that run continue.",
        fields=(_NOTE, _FOR),
    ),
    "resume": ChangeForm(
        title="Resume {queue}", text="Waiting jobs start again.", verb="Resume", done="Queue {queue} is resumed."
    ),
    "set_limits": ChangeForm(
        title="Limits of {queue}",
        text="Your limits override the code until an operator releases them.",
        verb="Set the limits",
        arguments=_limits,
        done="The limits of {queue} are set, and stay until an operator releases them.",
        fields=(
            FormField("version", "Version", kind="hidden"),
            *_LIMITS,
            FormField("waiting", "Waiting jobs", "Further adds are refused. Empty: no limit.", kind="number"),
            FormField("note", "Note"),
        ),
        present=_limits_now,
        changed_only=True,
    ),
    "set_retention": ChangeForm(
        title="Retention of {queue}",
        text="Ended jobs are kept as set here, whatever their options say, until an operator releases it.",
        verb="Set the retention",
        arguments=_retention,
        done="The retention of {state} jobs of {queue} stays until an operator releases it.",
        fields=(
            FormField("state", "State", kind="choice", value="completed", options=("completed", "failed")),
            FormField("count", "Jobs", "Empty: any number.", kind="number", placeholder="1000"),
            FormField("age", "Age", "Empty: any age.", placeholder="1d"),
            FormField("note", "Note"),
        ),
    ),
    "set_events": ChangeForm(
        title="Events of {queue}",
        text="Your rules override the code until an operator releases them. They apply to later events.",
        verb="Set the rules",
        arguments=_event_rules,
        done="The rules of the events of {queue} are set, and stay until an operator releases them.",
        fields=(
            FormField("off", "Switched off", "Kinds of events, or all.", placeholder="active progress"),
            FormField("interval", "Time between two progress events of a job", "Empty: each.", placeholder="5s"),
            FormField(
                "content",
                "Content of completed events",
                "The size of the result, or also its value up to 1 KiB.",
                kind="choice",
                options=(_NOTHING, "size", "value"),
            ),
            FormField("kept", "Kept events", "Empty: 100,000.", kind="number"),
            FormField("note", "Note"),
        ),
        present=_event_rules_now,
        changed_only=True,
    ),
    "pause_key": ChangeForm(
        title="Pause key {key}",
        text="No job of this key starts in {queue}. Other keys continue.",
        verb="Pause",
        arguments=lambda form: {"seconds": needed(seconds(form, "for"), "the duration")},
        done="No job of key {key} starts for now.",
        fields=(FormField("for", "For", value="10m", required=True),),
    ),
    "resume_key": ChangeForm(
        title="Resume key {key}",
        text="Jobs of this key start again in {queue}.",
        verb="Resume",
        done="Key {key} is resumed.",
    ),
    "set_key_limits": ChangeForm(
        title="Limits of key {key}",
        text="They apply to the jobs of this key in {queue}.",
        verb="Set the limits",
        arguments=_key_limits,
        done="The limits of key {key} are set.",
        fields=_LIMITS,
        present=_key_limits_now,
    ),
    "drain": ChangeForm(
        title="Delete the waiting jobs of {queue}",
        text="Running and delayed jobs stay. This cannot be undone.",
        verb="Delete waiting jobs",
        done="{count} waiting jobs of {queue} are deleted.",
        typed=True,
    ),
    "clean": ChangeForm(
        title="Clean {queue}",
        text="Ended jobs are removed before their retention ends.",
        verb="Clean",
        arguments=_clean,
        done="{count} jobs of {queue} are deleted.",
        fields=(
            FormField("state", "State", kind="choice", value="completed", options=("completed", "failed")),
            FormField("older", "Older than", value="1d"),
        ),
    ),
    "obliterate": ChangeForm(
        title="Obliterate {queue}",
        text="The queue, all jobs, schedules, limits and events are deleted. This cannot be undone.",
        verb="Obliterate",
        arguments=lambda form: {"ticket": form.get("ticket", "")},
        done="Queue {queue} and all of its jobs are deleted.",
        typed=True,
    ),
    "release_hold": ChangeForm(
        title="Release {setting} of {queue}",
        text="The value that the code declares applies again. Without one there is no limit. A released pause ends.",
        verb="Release",
        arguments=_release,
        done="{name} of {queue} comes from the code again.",
    ),
    "fire_schedule": ChangeForm(
        title="Fire {schedule} now",
        text="One job is added to {queue} now. The next fire time does not change.",
        verb="Fire now",
        done="Schedule {schedule} has added a job.",
    ),
    "pause_schedule": ChangeForm(
        title="Pause {schedule}",
        text="No job is added until it is resumed, also after a deploy.",
        verb="Pause",
        arguments=_note,
        done="Schedule {schedule} is paused.",
        fields=(_NOTE,),
    ),
    "resume_schedule": ChangeForm(
        title="Resume {schedule}",
        text="Jobs are added at its fire times again.",
        verb="Resume",
        done="Schedule {schedule} is resumed.",
    ),
    "remove_schedule": ChangeForm(
        title="Remove {schedule}",
        text="Code that declares it adds it again at its next start.",
        verb="Remove",
        done="Schedule {schedule} is removed.",
    ),
    "pause_worker": ChangeForm(
        title="Pause {worker}",
        text="The worker takes no new jobs. Jobs that run continue, and so do other workers.",
        verb="Pause",
        done="Worker {worker} takes no new jobs.",
    ),
    "resume_worker": ChangeForm(
        title="Resume {worker}",
        text="The worker takes jobs again.",
        verb="Resume",
        done="Worker {worker} takes jobs again.",
    ),
    "set_worker_concurrency": ChangeForm(
        title="Resize {worker}",
        text="The number of jobs that it runs at the same time, until it restarts.",
        verb="Resize",
        arguments=_slots,
        done="Worker {worker} gets {concurrency} slots.",
        fields=(FormField("concurrency", "Slots", kind="number", required=True),),
        present=_slots_now,
    ),
    "stop_worker": ChangeForm(
        title="Stop {worker}",
        text="The worker stops as with SIGTERM: running jobs that exceed its shutdown timeout return to the queue.",
        verb="Stop",
        done="Worker {worker} stops. Its running jobs may end within its shutdown timeout.",
    ),
    "cancel_operation": ChangeForm(
        title="Cancel the operation",
        text="Jobs that were changed stay changed. The other jobs are not changed.",
        verb="Cancel the rest",
        done="The operation is cancelled. Jobs that it has changed stay changed.",
    ),
    **ALERT_CHANGES,
}
