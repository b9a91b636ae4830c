"""Compares the stored data of job schedulers."""

from __future__ import annotations

from tests.model.compare import same
from tests.model.compare_dead_letters import raw
from tests.model.driver import Snapshot
from tests.model.scheduling import ScheduledQueue, Scheduler
from tests.model.worker import add_request


def compare_schedulers(seen: Snapshot, model: ScheduledQueue) -> None:
    """Raise an AssertionError if the snapshot and the model differ."""
    same("next fire times", seen.schedules, {id_: one.next for id_, one in model.schedulers.items()})
    same("records of schedulers", set(seen.schedulers), set(model.schedulers))
    same("last rev of a scheduler", int(seen.meta.get("schedulers", 0)), model.last_rev)
    timer, roles = seen.schedule_roles, dict[int, tuple[str, int]]()
    for role, name in ((1, "first"), (2, "second")):
        if name in timer:
            roles[role] = timer[name], int(timer[name + "_by"])
    same("processes that wait for the next fire time", roles, model.roles)
    for id_, one in model.schedulers.items():
        _compare(seen.schedulers[id_], one)


def _compare(record: dict[str, str], one: Scheduler) -> None:
    template, request = one.template, add_request(one.template.job)
    stored = {name: record[name] for name in ("spec", "limit", "overlap", "name", "data", "wait")}
    overlap = f"a{template.after}" if template.after is not None else "1" if template.alone else ""
    expected = {
        "spec": template.spec, "limit": "" if template.limit is None else str(template.limit),
        "overlap": overlap, "name": template.job.name, "data": template.job.data,
        "wait": "default",
    }  # fmt: skip
    same("stored fields of a scheduler", stored, expected)
    same("opts of its jobs", raw(record["opts"]), request.opts)
    same("extra of its jobs", raw(record["extra"]), request.extra)
    history = {name: int(record.get(name, 0)) for name in ("rev", "fired", "skipped")}
    same("counts of a scheduler", history, {name: getattr(one, name) for name in history})
    past = {name: record.get(name, "") for name in ("last_slot", "last_job", "triggered")}
    same("history of a scheduler", past, {name: getattr(one, name) for name in past})
