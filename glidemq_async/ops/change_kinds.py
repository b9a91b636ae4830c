"""The changes that operators make one at a time: the target of each, the role that it needs, and the method of Ops.

The HTTP API and the pages make their changes by this table, so that a change has the same target, the same right and
the same effect in both. The command line calls the methods itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from glidemq_async.errors import SchedulerNotFound
from glidemq_async.ops.access import Role
from glidemq_async.ops.core import Ops

_JOB: Final = ("queue", "job")
_QUEUE: Final = ("queue",)
_KEY: Final = ("queue", "key")
_SCHEDULE: Final = ("queue", "schedule")
_WORKER: Final = ("queue", "worker")


@dataclass(frozen=True, slots=True)
class ChangeKind:
    """A kind of change.

    - `method` is the name of the method of Ops. `target` names its first arguments in their order.
    - `summary` describes the change in one sentence.
    - `role` is the least role. A change with `is_dangerous` removes or stops something.
    """

    method: str
    target: tuple[str, ...]
    summary: str
    role: Role = "operator"
    is_dangerous: bool = False


CHANGE_KINDS: Final[Mapping[str, ChangeKind]] = {
    "retry": ChangeKind("retry", _JOB, "Run a failed job again."),
    "revoke": ChangeKind("revoke", _JOB, "Stop a job.", is_dangerous=True),
    "promote": ChangeKind("promote", _JOB, "Start a delayed job now."),
    "delay": ChangeKind("delay", _JOB, "Change the delay of a job."),
    "change_priority": ChangeKind("change_priority", _JOB, "Change the priority of a job."),
    "move": ChangeKind("move", _JOB, "Move a job to another queue."),
    "delete": ChangeKind("delete", _JOB, "Remove a job.", "admin", is_dangerous=True),
    "edit_and_replay": ChangeKind(
        "edit_and_replay", _JOB, "Change the data of a job, and run it again if it has failed.", "admin"
    ),
    "signal": ChangeKind("signal", _JOB, "Send a signal to a job."),
    "pause": ChangeKind("pause", _QUEUE, "Pause a queue. A deploy does not end the pause."),
    "resume": ChangeKind("resume", _QUEUE, "End the pause of a queue."),
    "set_limits": ChangeKind("set_limits", _QUEUE, "Set limits of a queue. null removes a limit.", "admin"),
    "set_retention": ChangeKind(
        "set_retention", _QUEUE, "Set how many ended jobs a queue keeps. It overrides the options of the jobs.", "admin"
    ),
    "set_events": ChangeKind("set_events", _QUEUE, "Set rules of the events of a queue. null removes a rule.", "admin"),
    "drain": ChangeKind("drain", _QUEUE, "Remove the waiting jobs of a queue.", "admin", is_dangerous=True),
    "clean": ChangeKind("clean", _QUEUE, "Remove old jobs of a queue.", "admin", is_dangerous=True),
    "obliterate": ChangeKind("obliterate", _QUEUE, "Remove a queue with all of its jobs.", "admin", is_dangerous=True),
    "release_hold": ChangeKind(
        "release_hold",
        _QUEUE,
        "Release a setting that an operator holds: the declared value applies again, or none.",
        "admin",
    ),
    "pause_key": ChangeKind("pause_key", _KEY, "Pause an ordering key."),
    "resume_key": ChangeKind("resume_key", _KEY, "End the pause of an ordering key."),
    "set_key_limits": ChangeKind("set_key_limits", _KEY, "Set limits of an ordering key.", "admin"),
    "fire_schedule": ChangeKind("fire_schedule", _SCHEDULE, "Add a job of a schedule now."),
    "pause_schedule": ChangeKind("pause_schedule", _SCHEDULE, "Pause a schedule. A deploy does not end the pause."),
    "resume_schedule": ChangeKind("resume_schedule", _SCHEDULE, "Resume a schedule."),
    "remove_schedule": ChangeKind("remove_schedule", _SCHEDULE, "Remove a schedule.", "admin", is_dangerous=True),
    "pause_worker": ChangeKind("pause_worker", _WORKER, "Pause a worker: it claims no more jobs."),
    "resume_worker": ChangeKind("resume_worker", _WORKER, "End the pause of a worker: it claims jobs again."),
    "set_worker_concurrency": ChangeKind(
        "set_worker_concurrency", _WORKER, "Change the concurrency of a worker.", "admin"
    ),
    "stop_worker": ChangeKind("stop_worker", _WORKER, "Stop a worker as SIGTERM does.", "admin", is_dangerous=True),
    "set_alert": ChangeKind("set_alert", (), "Store an alert rule.", "admin"),
    "remove_alert": ChangeKind("remove_alert", ("alert",), "Remove an alert rule.", "admin", is_dangerous=True),
    "test_alert": ChangeKind("test_alert", ("alert",), "Send a test notification to the webhooks of a rule.", "admin"),
    "cancel_operation": ChangeKind("cancel_operation", ("operation",), "Cancel a bulk operation."),
}
"""The changes by their names."""


async def make_change(
    ops: Ops, name: str, target: Mapping[str, str], arguments: Mapping[str, Any], reason: str = ""
) -> Any:
    """Make a change, and return what the method of Ops returns.

    Raises the errors of the method, SchedulerNotFound for a schedule that does not exist, and KeyError if a part of
    the target is missing.
    """
    kind = CHANGE_KINDS[name]
    parts = [target[part] for part in kind.target]
    found = await getattr(ops, kind.method)(*parts, **arguments, reason=reason)
    if kind.target == _SCHEDULE and found is False:
        raise SchedulerNotFound(f"queue {parts[0]!r} has no schedule {parts[1]!r}")
    return found


def changed_count(found: object) -> int | None:
    """Return the number of changed jobs in what a change has returned, None if it does not say."""
    if isinstance(found, bool):
        return None
    return found if isinstance(found, int) else len(cast("list[object]", found)) if isinstance(found, list) else None
