"""Icons, colours and words for states, gates and entries of a history. Each colour comes with an icon or a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from glidemq_async.ops.history import HistoryEntry
from glidemq_async.ops.queue_rows import QueueWorker, ScheduleRow


@dataclass(frozen=True, slots=True)
class Look:
    """The icon, the class of the colour, and the text of something that has a state."""

    icon: str
    tone: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the navigation."""

    path: str
    title: str
    icon: str


STATES: Final = {
    "waiting": Look("wait", ""),
    "prioritized": Look("wait", ""),
    "key-waiting": Look("keys", ""),
    "rate-limited": Look("clock", "t-warn"),
    "delayed": Look("clock", "t-later"),
    "waiting-children": Look("branch", "t-later"),
    "suspended": Look("signal", "t-later"),
    "active": Look("play", "t-run"),
    "completed": Look("check", "t-good"),
    "received": Look("check", "t-good"),
    "failed": Look("cross", "t-bad"),
    "timeout": Look("clock", "t-warn"),
}
_UNKNOWN: Final = Look("info", "")

_GATES: Final = {
    "paused": Look("pause", "c-warn"),
    "key-paused": Look("pause", "c-warn"),
    "key-busy": Look("keys", "c-warn"),
    "window": Look("clock", "c-warn"),
    "bucket": Look("drain", "c-warn"),
    "queue-limit": Look("lock", "c-warn"),
    "gate": Look("lock", "c-warn"),
    "delayed": Look("clock", "c-later"),
    "children": Look("branch", "c-later"),
    "signal": Look("signal", "c-later"),
    "no-worker": Look("workers", "c-bad"),
    "unknown-task": Look("alert", "c-bad"),
    "no-version": Look("alert", "c-bad"),
    "behind": Look("wait", "c-run"),
    "running": Look("play", "c-run"),
    "ended": Look("check", "c-good"),
}

_RUNS: Final = {
    "completed": Look("check", "c-good"),
    "failed": Look("cross", "c-bad"),
    "revoked": Look("stop", "c-bad"),
    "stalled": Look("alert", "c-warn"),
    "retrying": Look("retry", "c-warn"),
    "delayed": Look("clock", "c-later"),
    "suspended": Look("signal", "c-later"),
    "waiting-children": Look("branch", "c-later"),
}

OPERATIONS: Final = {
    "previewed": Look("info", ""),
    "running": Look("play", "t-run"),
    "done": Look("check", "t-good"),
    "cancelled": Look("stop", ""),
    "stopped": Look("alert", "t-bad"),
}

NAVIGATION: Final = (
    (
        "",
        (
            Entry("", "Overview", "overview"),
            Entry("failures", "Failures", "failures"),
            Entry("operations", "Operations", "operations"),
        ),
    ),
    (
        "Work",
        (
            Entry("jobs", "Jobs", "jobs"),
            Entry("queues", "Queues", "queues"),
            Entry("workers", "Workers", "workers"),
            Entry("workflows", "Workflows", "workflows"),
        ),
    ),
    (
        "Rules",
        (
            Entry("keys", "Keys", "keys"),
            Entry("schedules", "Schedules", "schedules"),
            Entry("alerts", "Alerts", "alert"),
            Entry("dead-letters", "Dead letters", "dead"),
        ),
    ),
    ("System", (Entry("store", "Store", "store"), Entry("audit", "Audit", "audit"))),
)

SHORTCUTS: Final = (
    ("g o", "Overview"),
    ("g f", "Failures"),
    ("g j", "Jobs"),
    ("g q", "Queues"),
    ("g w", "Workers"),
    ("g s", "Schedules"),
    ("/", "Filter jobs"),
    ("p", "Pause updates"),
    ("?", "This list"),
    ("Esc", "Close"),
)

HEADLINES: Final = {
    "ok": "All queues are in time.",
    "behind": "Work is behind.",
    "failing": "Too many jobs fail.",
    "stopped": "Work has stopped.",
}


def state_look(state: str) -> Look:
    """Return the look of the state of a job."""
    return STATES.get(state, _UNKNOWN)


def gate_look(kind: str) -> Look:
    """Return the look of a gate at which a job waits."""
    return _GATES.get(kind, Look("info", "c-run"))


def entry_look(entry: HistoryEntry) -> Look:
    """Return the look of an entry of a job's history."""
    if entry.kind == "action":
        return Look("user", "c-later")
    if entry.kind == "event":
        return Look("alert", "c-bad")
    return _RUNS.get(entry.outcome, Look("play", "c-run"))


def entry_title(entry: HistoryEntry) -> str:
    """Return the title of an entry of a job's history."""
    if entry.kind == "attempt":
        return f"Run {entry.number}: {entry.outcome}"
    return entry.outcome.capitalize()


def schedule_state(row: ScheduleRow) -> Look:
    """Return the look of a schedule."""
    if row.is_paused:
        return Look("pause", "t-warn", "paused")
    if row.late_seconds is not None:
        return Look("clock", "t-bad", "late")
    return Look("check", "t-good", "in time")


def worker_state(row: QueueWorker) -> Look:
    """Return the look of a worker."""
    if row.state != "running":
        return Look("stop" if row.state == "stopping" else "pause", "t-warn", row.state)
    if row.running:
        return Look("play", "t-run", "busy")
    return Look("check", "t-good", "idle")
