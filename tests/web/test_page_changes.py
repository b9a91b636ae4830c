"""Each form of the pages: who may open and send it, what it shows, what it does, and the audit line that it leaves."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import pytest

pytest.importorskip("starlette")
pytest.importorskip("jinja2")

from glidemq_async import EventRules, GlideMQ, RateLimit, Schedule
from glidemq_async.ops import Actor, Ops
from glidemq_async.ops.change_kinds import CHANGE_KINDS
from glidemq_async.storage import Storage
from glidemq_async.web.pages.changes import CHANGES
from tests.web.test_pages import fields_of, served, texts

pytestmark = pytest.mark.only_on("memory")
QUEUE = "mail"


@dataclass
class Place:
    """A store with a queue, an idle worker of another queue, and the operations core of somebody else."""

    mq: GlideMQ[Any]
    ops: Ops

    @property
    def queue(self) -> Any:
        """The queue of the jobs."""
        return self.mq.queue(QUEUE)

    async def failed(self) -> str:
        """Return a failed job."""
        job = await self.queue.add("send", {"to": "ada"})
        await self.queue.revoke(job.id)
        return str(job.id)

    async def waiting(self) -> str:
        """Return a waiting job."""
        return str((await self.queue.add("send", {"to": "ada"})).id)

    async def delayed(self) -> str:
        """Return a delayed job."""
        return str((await self.queue.add("send", delay=3600)).id)

    async def state(self, job: str) -> str:
        """Return the state of a job."""
        found = await self.queue.get_job(job)
        return "gone" if found is None else str(found.state)


@dataclass(frozen=True)
class Case:
    """A form: its target, what is typed into it, the action in the audit line, and what is true afterwards."""

    target: Callable[[Place], Awaitable[dict[str, str]]]
    after: Callable[[Place, dict[str, str]], Awaitable[bool]]
    action: str
    typed: dict[str, str] = field(default_factory=dict[str, str])


def of_job(make: Callable[[Place], Awaitable[str]]) -> Callable[[Place], Awaitable[dict[str, str]]]:
    """Return a target: a new job in a state."""

    async def target(place: Place) -> dict[str, str]:
        return {"queue": QUEUE, "job": await make(place)}

    return target


def has_state(state: str) -> Callable[[Place, dict[str, str]], Awaitable[bool]]:
    """Return a check of the state of the job."""

    async def check(place: Place, target: dict[str, str]) -> bool:
        return await place.state(target["job"]) == state

    return check


async def the_queue(place: Place) -> dict[str, str]:
    """Return the queue as the target."""
    return {"queue": QUEUE}


async def the_key(place: Place) -> dict[str, str]:
    """Return a key as the target."""
    return {"queue": QUEUE, "key": "tenant"}


async def the_schedule(place: Place) -> dict[str, str]:
    """Return a schedule as the target."""
    await place.queue.upsert_job_scheduler("nightly", Schedule(cron="0 3 * * *"), name="report")
    return {"queue": QUEUE, "schedule": "nightly"}


async def the_worker(place: Place) -> dict[str, str]:
    """Return the worker as the target."""
    [worker] = await place.ops.workers(["work"])
    return {"queue": "work", "worker": worker.name}


async def a_held_limit(place: Place) -> dict[str, str]:
    """Return a limit that an operator holds."""
    await place.ops.set_limits(QUEUE, max_waiting=1000)
    return {"queue": QUEUE, "name": "max_waiting"}


async def a_started_operation(place: Place) -> dict[str, str]:
    """Return an operation that nobody runs."""
    await place.failed()
    found = await place.ops.preview("retry", f"queue:{QUEUE} state:failed")
    await place.ops.start(found.operation_id, found.ticket)
    return {"operation": found.operation_id}


async def _edited(place: Place, target: dict[str, str]) -> bool:
    job = await place.queue.get_job(target["job"])
    return bool(job.data == {"to": "bob"} and job.state == "waiting")


async def _later(place: Place, target: dict[str, str]) -> bool:
    return (await place.ops.job(QUEUE, target["job"])).row.due_at is not None


async def _urgent(place: Place, target: dict[str, str]) -> bool:
    return (await place.ops.job(QUEUE, target["job"])).row.priority == 7


async def _moved(place: Place, target: dict[str, str]) -> bool:
    return bool(await place.state(target["job"]) == "gone" and await place.mq.queue("other").count() == 1)


async def _signalled(place: Place, target: dict[str, str]) -> bool:
    return [each.name for each in await place.queue.get_mailbox(target["job"])] == ["approved"]


async def _paused(place: Place, target: dict[str, str]) -> bool:
    return bool(await place.queue.is_paused())


async def _resumed(place: Place, target: dict[str, str]) -> bool:
    return not await place.queue.is_paused()


async def _limited(place: Place, target: dict[str, str]) -> bool:
    return bool(
        await place.queue.get_global_concurrency() == 4
        and await place.queue.get_global_rate_limit() == RateLimit(100, 60)
        and await place.queue.get_max_waiting() == 5000
    )


async def _retained(place: Place, target: dict[str, str]) -> bool:
    return "keep_failed" in {each.name for each in await place.ops.settings(QUEUE) if each.origin == "operator"}


async def _key_paused(place: Place, target: dict[str, str]) -> bool:
    return (await place.queue.get_key_limits("tenant")).paused_until is not None


async def _key_resumed(place: Place, target: dict[str, str]) -> bool:
    return (await place.queue.get_key_limits("tenant")).paused_until is None


async def _events_ruled(place: Place, target: dict[str, str]) -> bool:
    rules = EventRules(max_events=500, off=("active", "progress"), progress_interval=5, content="value")
    return bool(await place.queue.get_event_rules() == rules)


async def _key_limited(place: Place, target: dict[str, str]) -> bool:
    return bool((await place.queue.get_key_limits("tenant")).concurrency == 2)


async def _drained(place: Place, target: dict[str, str]) -> bool:
    return bool((await place.queue.get_job_counts())["waiting"] == 0)


async def _cleaned(place: Place, target: dict[str, str]) -> bool:
    return bool((await place.queue.get_job_counts())["failed"] == 0)


async def _released(place: Place, target: dict[str, str]) -> bool:
    return await place.queue.get_max_waiting() is None


async def _fired(place: Place, target: dict[str, str]) -> bool:
    return "report" in {job.name for job in await place.queue.get_jobs("waiting")}


async def _schedule_paused(place: Place, target: dict[str, str]) -> bool:
    return bool((await place.queue.get_job_schedulers())[0].is_paused)


async def _schedule_resumed(place: Place, target: dict[str, str]) -> bool:
    return not await _schedule_paused(place, target)


async def _unscheduled(place: Place, target: dict[str, str]) -> bool:
    return not await place.queue.get_job_schedulers()


async def _told(place: Place, target: dict[str, str]) -> bool:
    return True  # the tests of worker control watch the worker


async def _cancelled(place: Place, target: dict[str, str]) -> bool:
    return (await place.ops.operation(target["operation"])).state == "cancelled"


async def the_rule(place: Place) -> dict[str, str]:
    """Return an alert rule as the target."""
    await place.ops.set_alert("slow", "waiting > 5")
    return {"alert": "slow"}


async def _ruled(place: Place, target: dict[str, str]) -> bool:
    return [rule.condition for rule in (await place.ops.alerts()).rules] == ["waiting > 9 for 1m"]


async def _unruled(place: Place, target: dict[str, str]) -> bool:
    return (await place.ops.alerts()).rules == ()


async def _obliterated(place: Place, target: dict[str, str]) -> bool:
    return QUEUE not in await place.ops.queue_names()


# In this order: each case leaves the store as the next one needs it.
CASES = {
    "retry": Case(of_job(Place.failed), has_state("waiting"), "retry"),
    "revoke": Case(of_job(Place.waiting), has_state("failed"), "revoke"),
    "promote": Case(of_job(Place.delayed), has_state("waiting"), "promote"),
    "delay": Case(of_job(Place.waiting), _later, "delay", {"delay": "10m"}),
    "change_priority": Case(of_job(Place.waiting), _urgent, "change_priority", {"priority": "7"}),
    "move": Case(of_job(Place.waiting), _moved, "move", {"to": "other"}),
    "delete": Case(of_job(Place.failed), has_state("gone"), "delete"),
    "edit_and_replay": Case(of_job(Place.failed), _edited, "edit", {"data": '{"to": "bob"}'}),
    "signal": Case(of_job(Place.waiting), _signalled, "signal", {"name": "approved", "data": "1"}),
    "pause": Case(the_queue, _paused, "pause", {"note": "the relay is down", "for": "30m"}),
    "resume": Case(the_queue, _resumed, "resume"),
    "set_limits": Case(
        the_queue, _limited, "set limits", {"concurrency": "4", "rate": "100", "per": "60s", "waiting": "5000"}
    ),
    "set_retention": Case(the_queue, _retained, "set retention", {"state": "failed", "count": "500"}),
    "set_events": Case(
        the_queue,
        _events_ruled,
        "set events",
        {"off": "progress, active", "interval": "5s", "content": "value", "kept": "500"},
    ),
    "pause_key": Case(the_key, _key_paused, "pause key", {"for": "10m"}),
    "resume_key": Case(the_key, _key_resumed, "resume key"),
    "set_key_limits": Case(the_key, _key_limited, "set key limits", {"concurrency": "2"}),
    "release_hold": Case(a_held_limit, _released, "release hold"),
    "drain": Case(the_queue, _drained, "drain", {"typed": QUEUE}),
    "clean": Case(the_queue, _cleaned, "clean", {"state": "failed", "older": "0s"}),
    "fire_schedule": Case(the_schedule, _fired, "fire schedule"),
    "pause_schedule": Case(the_schedule, _schedule_paused, "pause schedule"),
    "resume_schedule": Case(the_schedule, _schedule_resumed, "resume schedule"),
    "remove_schedule": Case(the_schedule, _unscheduled, "remove schedule"),
    "pause_worker": Case(the_worker, _told, "pause worker"),
    "resume_worker": Case(the_worker, _told, "resume worker"),
    "set_worker_concurrency": Case(the_worker, _told, "set worker concurrency", {"concurrency": "3"}),
    "stop_worker": Case(the_worker, _told, "stop worker"),
    "set_alert": Case(the_rule, _ruled, "set alert", {"condition": "waiting > 9"}),
    "test_alert": Case(the_rule, _told, "test alert"),
    "remove_alert": Case(the_rule, _unruled, "remove alert"),
    "cancel_operation": Case(a_started_operation, _cancelled, "cancel_operation"),
    "obliterate": Case(the_queue, _obliterated, "obliterate", {"typed": QUEUE}),
}


@pytest.fixture
async def place(storage: Storage) -> AsyncIterator[Place]:
    """A store with two queues and an idle worker."""
    mq: GlideMQ[Any] = GlideMQ(storage)

    @mq.task(queue="work")
    async def work() -> None:
        pass

    async with mq, Ops.of(mq, actor=Actor("python", "somebody else")) as ops:
        for name in (QUEUE, "other"):
            await mq.queue(name).connect()
        async with mq.worker():
            yield Place(mq, ops)


@pytest.mark.timeout(180)  # some 500 requests
async def test_each_form_is_open_to_its_roles_and_does_what_it_says(place: Place) -> None:
    assert CASES.keys() == CHANGES.keys() == CHANGE_KINDS.keys()
    for name, case in CASES.items():
        target = await case.target(place)
        path = f"/change/{name}?{urlencode(target)}"
        actor = {"operator": "otto", "admin": "ada"}
        for role in ("viewer", "operator", "admin"):
            may = role == "admin" or role == CHANGE_KINDS[name].role
            async with served(place.mq, role) as client:
                form = await client.get(path)
                assert form.status_code == (200 if may else 403), (name, role)
                token = fields_of((await client.get("/")).text, "/theme")["form_token"]
                written = await audited(place)
                for fields, status in (
                    ({**target, **case.typed}, 403),  # without the token of the page
                    ({**target, **case.typed, "form_token": token}, 403 if not may else 0),
                ):
                    if status:
                        reply = await client.post(f"/change/{name}", data=fields)
                        assert reply.status_code == status, (name, role)
                assert await audited(place) == written, (name, role)
                if role != CHANGE_KINDS[name].role:
                    continue
                fields = {**fields_of(form.text, f"/change/{name}"), **case.typed, "reason": "because"}
                reply = await client.post(f"/change/{name}", data=fields)
                assert reply.status_code == 303, (name, texts(reply.text)[-400:])
                shown = await client.get(reply.headers["location"])
                assert 'role="status"' in shown.text, name
            assert await case.after(place, target), name
            line = (await place.ops.audit.read(1)).lines[0]
            assert (line.action, line.actor, line.source, line.reason, line.result) == (
                case.action,
                actor[role],
                "page",
                "because",
                "ok",
            ), name


async def audited(place: Place) -> int:
    """Return the number of audit lines."""
    return len((await place.ops.audit.read(200)).lines)


async def test_a_form_of_limits_begins_with_the_present_ones_and_sends_what_was_changed(place: Place) -> None:
    await place.queue.set_global_concurrency(8)
    await place.queue.set_global_rate_limit(RateLimit(100, 60))
    async with served(place.mq) as client:
        page = await client.get(f"/change/set_limits?queue={QUEUE}")
        fields = fields_of(page.text, "/change/set_limits")
        assert (fields["concurrency"], fields["rate"], fields["per"], fields["waiting"]) == ("8", "100", "60s", "")
        same = await client.post("/change/set_limits", data=fields)
        assert same.status_code == 422
        reply = await client.post("/change/set_limits", data=fields | {"concurrency": "2"})
        assert reply.status_code == 303
    held = {each.name for each in await place.ops.settings(QUEUE) if each.origin == "operator"}
    assert held == {"concurrency"}


async def test_limits_that_somebody_else_has_changed_are_shown_instead_of_overwritten(place: Place) -> None:
    async with served(place.mq) as client:
        page = await client.get(f"/change/set_limits?queue={QUEUE}")
        fields = fields_of(page.text, "/change/set_limits") | {"concurrency": "2"}
        await place.ops.set_limits(QUEUE, concurrency=9)
        reply = await client.post("/change/set_limits", data=fields)
        assert reply.status_code == 412
        assert "have changed since" in texts(reply.text)
        again = fields_of(reply.text, "/change/set_limits")
        assert again["concurrency"] == "9"
        assert await place.queue.get_global_concurrency() == 9
        assert (await client.post("/change/set_limits", data=again | {"concurrency": "3"})).status_code == 303
    assert await place.queue.get_global_concurrency() == 3


async def test_an_operation_with_a_wrong_ticket_leads_back_to_its_preview(place: Place) -> None:
    job = await place.failed()
    async with served(place.mq) as client:
        page = await client.get("/operations")
        assert "No process runs operations" in texts(page.text)
        fields = fields_of(page.text, "/operations/preview") | {"action": "retry", "filter": "state:failed"}
        preview = await client.post("/operations/preview", data=fields)
        [action] = re.findall(r'action="(/operations/[^"]+/start)"', preview.text)
        start = fields_of(preview.text, action)
        wrong = await client.post(action, data=start | {"ticket": "an old one"})
        assert wrong.status_code == 409
        assert "Nothing was started" in texts(wrong.text)
        assert await place.state(job) == "failed"
        [fresh] = re.findall(r'action="(/operations/[^"]+/start)"', wrong.text)
        begun = await client.post(fresh, data=fields_of(wrong.text, fresh))
        assert begun.status_code == 303
        gone = await client.post("/operations/unknown/start", data=start)
        assert gone.status_code == 404
        assert 'value="state:failed"' in gone.text
        async with place.ops.worker():
            await place.ops.wait_operation(fresh.split("/")[2], 20)
            assert "No process runs operations" not in texts((await client.get("/operations")).text)
    assert await place.state(job) == "waiting"


async def test_a_wrong_ticket_of_an_obliteration_leads_back_to_the_form(place: Place) -> None:
    await place.waiting()
    async with served(place.mq) as client:
        page = await client.get(f"/change/obliterate?queue={QUEUE}")
        fields = fields_of(page.text, "/change/obliterate") | {"typed": QUEUE}
        reply = await client.post("/change/obliterate", data=fields | {"ticket": "1-old"})
        assert reply.status_code == 409
        assert "not a ticket" in texts(reply.text)
        assert fields_of(reply.text, "/change/obliterate")["ticket"] == fields["ticket"]
    assert QUEUE in await place.ops.queue_names()


async def test_a_form_without_its_target_is_not_found(place: Place) -> None:
    async with served(place.mq) as client:
        for name in CHANGES:
            assert (await client.get(f"/change/{name}")).status_code in {200, 404}, name
