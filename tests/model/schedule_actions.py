"""Processes that run job schedulers. A process may act on a schedule that another client has changed."""

from __future__ import annotations

from typing import Literal

import hypothesis.strategies as st
from hypothesis import note

from glidemq_async.functions.scheduler_list import StoredScheduler
from glidemq_async.functions.schedulers import DueScheduler, Firing, SchedulerTemplate
from tests.model.choices import DELIVERY, NEW, NUMBER, action
from tests.model.compare import same
from tests.model.driver import Delivery, run
from tests.model.machine_base import BaseMachine
from tests.model.parts import NewJob
from tests.model.scheduling import Template
from tests.model.worker import add_request

EVERY_MS = 7_000
IDS = st.sampled_from(["s", "s", "t"])
PROCESSES = st.sampled_from(["p1", "p2", "p3"])
MOST_FIRE_TIMES = 3
ALONE = st.sampled_from([True, False, False, None])
"""None: the next fire time counts from the end of the job."""


class ScheduleActions(BaseMachine):
    """Schedulers of intervals."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, StoredScheduler | None] = {}  # as a process has read them
        self.fired_before: set[tuple[str, int, int]] = set()

    def look_up(self, id_: str, fresh: bool) -> StoredScheduler | None:
        if fresh or self.known.get(id_) is None:
            now, [self.known[id_]] = run(self.functions.scheduler_list.get([id_]))
            same("server time", now, self.model.now)
        return self.known[id_]

    @action(2, id_=IDS, process=PROCESSES, kind=st.sampled_from(NEW), limit=st.sampled_from([None, None, 1, 3]),
            alone=ALONE, start=st.sampled_from([None, *[EVERY_MS] * 4, 3 * EVERY_MS]), keep=st.booleans(),
            fresh=st.sampled_from([True, True, True, False]), delivery=DELIVERY)  # fmt: skip
    def upsert(
        self,
        id_: str,
        process: str,
        kind: NewJob,
        limit: int | None,
        alone: bool | None,
        start: int | None,
        keep: bool,
        fresh: bool,
        delivery: Delivery,
    ) -> None:
        """Choose a next fire time: the stored one, a later one, or none."""
        self.made += 1
        job = kind._replace(id="", name=f"n{self.made}", data=f"d{self.made}", at=None, reply=None)
        if self.plain:
            job = job._replace(priority=0, lifo=False, key=None, dedup=None)
        seen = self.look_up(id_, fresh)
        next_fire = seen.next if seen and keep else None if start is None else self.model.now + start
        after = EVERY_MS if alone is None else None  # the next fire time counts from the end of the job
        if after is not None:
            job = job._replace(dedup=None)
        template = Template(f"every {self.made}", job, limit, bool(alone), after)
        request = add_request(job)
        wire = SchedulerTemplate(
            *(template.spec.encode(), limit, bool(alone), job.name, request.data, request.opts, request.extra),
            "default",
            "" if after is None else f"a{after}",
        )
        self.driver.delivery, self.dirty = delivery, True
        answer = run(self.functions.schedulers.upsert(process, id_, seen, wire, next_fire))
        as_seen = (_rev(seen), seen.next) if seen else None
        same("reply of upsertScheduler", answer, self.model.upsert(process, id_, as_seen, template, next_fire))

    @action(4, id_=IDS, number=NUMBER, fresh=st.booleans(), ends=st.sampled_from([False] * 7 + [True]),
            delivery=DELIVERY)  # fmt: skip
    def fire(self, id_: str, number: int, fresh: bool, ends: bool, delivery: Delivery) -> None:
        """Fire some of the due fire times, and sometimes one that is not due."""
        seen = self.look_up(id_, fresh)
        if seen is None or seen.next is None:
            limit = 3 if number % 2 else None
            self.upsert(id_, "p1", NEW[number % 8 * 9], limit, number % 3 > 0, EVERY_MS, False, True, delivery)
            return
        if number % 4:
            # A process waits for the fire time before it fires.
            self.pass_time(max(0, -(-(seen.next - self.model.now) // EVERY_MS) * EVERY_MS))
        due = [*range(seen.next, self.model.now + 1, EVERY_MS)] or [seen.next]
        fire_times = due[-(number % MOST_FIRE_TIMES) :] if number % MOST_FIRE_TIMES else due[:1] if number % 5 else []
        if any(self.is_record_lost(f"{id_}@{fire_time}") for fire_time in fire_times):
            return
        skipped = len(due) - len(fire_times)
        next_fire = None if ends else due[-1] + EVERY_MS
        due_row = DueScheduler(id_, str(_rev(seen)), seen.next, b"", "default")
        note(f"  fire_times {fire_times} of {due}, now {self.model.now}")
        stored = self.model.schedulers.get(id_)
        before = stored.fired if stored else 0
        self.driver.delivery, self.dirty = delivery, True
        [done] = run(
            self.functions.schedulers.fire([Firing(due_row, tuple(fire_times), skipped, next_fire)], "default")
        )
        fired = done != "moved"
        assert done in ("moved", len(fire_times))
        same(
            "reply of fireSchedulers",
            fired,
            self.model.fire(id_, (_rev(seen), seen.next), fire_times, skipped, next_fire),
        )
        if fired and stored and stored.fired > before:
            for fire_time in fire_times:
                assert (id_, stored.born, fire_time) not in self.fired_before, (
                    f"fire time {fire_time} of {id_} was fired before"
                )
                self.fired_before.add((id_, stored.born, fire_time))

    @action(2, id_=IDS, process=PROCESSES, delivery=DELIVERY,
            what=st.sampled_from([*["trigger"] * 4, *["take"] * 3, "leave", "remove", "pause", "pause",
                                  *["resume"] * 3]))  # fmt: skip
    def keep_schedulers(
        self,
        id_: str,
        process: str,
        what: Literal["trigger", "take", "leave", "remove", "pause", "resume"],
        delivery: Delivery,
    ) -> None:
        self.driver.delivery, self.dirty = delivery, True
        if what == "trigger":
            self.trigger(id_)
        elif what == "remove":
            same("reply of remove", run(self.functions.schedulers.remove(id_)), self.model.remove_scheduler(id_))
        elif what == "pause":
            same("reply of pause", run(self.functions.schedulers.pause(id_)), self.model.pause_scheduler(id_))
        elif what == "resume":
            self.resume(id_, process)
        elif what == "leave":
            run(self.functions.schedulers.leave(process))
            self.model.leave_schedules(process)
        else:
            known = self.known.get("s")
            after = (known.next, "s") if self.made % 4 == 0 and known and known.next is not None else None
            reply = run(self.functions.schedulers.take(process, after, spread=self.made))
            rows = [(row.id, int(row.rev), row.fire_time) for row in reply.due]
            found = reply.holds_role, reply.is_first, reply.at, rows, reply.since
            same("reply of takeSchedules", found, self.model.take_schedules(process, after))

    def resume(self, id_: str, process: str) -> None:
        """Resume a scheduler as the process has read it, which may be out of date."""
        seen = self.look_up(id_, self.made % 3 > 0)
        if seen is not None:
            next_fire = self.model.now + EVERY_MS
            found = run(self.functions.schedulers.resume(process, seen, next_fire))
            expected = self.model.resume_scheduler(process, id_, _rev(seen), next_fire)
            same("reply of resumeScheduler", found, expected)

    def trigger(self, id_: str) -> None:
        reply = run(self.functions.schedulers.trigger(id_, "default"))
        same("whether the scheduler exists", reply is not None, id_ in self.model.schedulers)
        if reply is not None:
            template = self.model.schedulers[id_].template
            same("job that was triggered", (reply.name, reply.data.decode()), (template.job.name, template.job.data))
            same("reply of triggerScheduler", (reply.id, reply.outcome), self.model.trigger(id_, reply.id))

    def check(self) -> None:
        super().check()
        ids, cursor = set[str](), "0"
        while cursor:
            cursor, some = run(self.functions.scheduler_list.list_ids(cursor))
            ids.update(some)
        same("schedulers", ids, set(self.model.schedulers))


def _rev(seen: StoredScheduler) -> int:
    return int(seen.record[b"rev"])
