"""Alert rules open and close episodes, and notify once for each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from glidemq_async import Queue
from glidemq_async.functions.alerts import Holds, Observation
from glidemq_async.ops import AlertNotFound, Ops, QueueNotFound, verify_webhook
from glidemq_async.ops.alerts.delivery import delivery_worker
from glidemq_async.ops.alerts.evaluator import Evaluator
from glidemq_async.ops.verdicts import judge
from glidemq_async.storage import Storage
from tests.ops.receiver import Receiver, receiving
from tests.support.clocked_queue import HOUR, MINUTE, SECOND, Timed
from tests.support.helpers import AnyJob, AnyQueue, ended, soon, worker_of

HOSTS = ["127.0.0.1"]


@pytest.fixture
async def ops(timed: Timed) -> AsyncIterator[Ops]:
    """An operations core on a server whose clock the test moves. The queue exists."""
    await timed.queue.connect()
    async with Ops(timed.queue.storage) as opened:
        yield opened


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A receiver of webhooks."""
    async with receiving() as opened:
        yield opened


def evaluator_of(ops: Ops) -> Evaluator:
    """Return a new evaluator, as of a new process."""
    return Evaluator(ops._connections)  # pyright: ignore[reportPrivateUsage]


async def deliver(ops: Ops, hosts: list[str] | None = HOSTS) -> None:
    """Send the notifications that wait."""
    async with delivery_worker(ops._connections, hosts) as worker:  # pyright: ignore[reportPrivateUsage]
        await worker.until_empty(wait=False)


async def states(ops: Ops) -> list[tuple[str, str, str]]:
    """Return the rule, the queue and the state of each episode, the oldest first."""
    found = await ops.alert_episodes()
    return [(each.rule, each.queue, each.state) for each in reversed(found)]


async def test_an_episode_opens_and_closes_after_its_time_and_notifies_once_each(
    ops: Ops, timed: Timed, receiver: Receiver
) -> None:
    stored = await ops.set_alert("busy", "waiting > 2 for 1m", webhooks=[receiver.url], note="see the runbook")
    assert stored.secret is not None
    await timed.queue.add_bulk([("n", number) for number in range(3)])
    looker = evaluator_of(ops)
    assert await looker.look() == 0
    await timed.clock.advance(59 * SECOND)
    assert await looker.look() == 0
    await timed.clock.advance(2 * SECOND)
    assert await looker.look() == 1
    await looker.leave()
    restarted = evaluator_of(ops)
    assert await restarted.look() == await restarted.look() == 0
    await deliver(ops)
    opened = await receiver.next()
    assert receiver.count == 0
    assert verify_webhook(stored.secret, opened.headers, opened.body).endswith(".opened")
    data = opened.json["data"]
    assert (opened.json["type"], data["queue"], data["state"]) == ("alert.opened", timed.queue.name, "open")
    assert (data["text"], data["condition"]) == (f"3 jobs of {timed.queue.name} wait", "waiting > 2 for 1m")
    [episode] = await ops.alert_episodes(open_only=True)
    assert dict(episode.notifications) == {"opened:1": "delivered (204)"}
    view = await ops.overview()
    assert view.alerts == (episode,)
    assert f"alert busy: {episode.text}" in view.reasons
    assert judge([], view.alerts) == ("behind", (f"alert busy: {episode.text}",))

    await timed.run()
    assert await restarted.look() == 0
    await timed.clock.advance(61 * SECOND)
    assert await restarted.look() == 1
    await deliver(ops)
    closed = await receiver.next()
    assert (closed.json["type"], closed.json["data"]["ended_by"]) == ("alert.closed", "the condition has ended")
    assert verify_webhook(stored.secret, closed.headers, closed.body) == f"{episode.id}.closed"
    assert await ops.alert_episodes(open_only=True) == []
    assert (await ops.overview()).verdict == "ok"
    assert [line.action for line in (await ops.audit.read()).lines] == ["set alert"]


async def test_a_condition_that_changes_faster_than_its_time_neither_opens_nor_closes(ops: Ops, timed: Timed) -> None:
    await ops.set_alert("busy", "waiting > 0 for 1m", queues=[timed.queue.name])
    looker = evaluator_of(ops)
    for expected in (0, 1):
        for _ in range(3):
            await timed.queue.add("n")
            assert await looker.look() == 0
            await timed.clock.advance(40 * SECOND)
            if not expected:
                await timed.run()
            assert await looker.look() == 0
            if expected:
                await timed.run()
                assert await looker.look() == 0
            await timed.clock.advance(40 * SECOND)
        if not expected:
            await timed.queue.add("n")
            await looker.look()
            await timed.clock.advance(MINUTE)
            assert await looker.look() == 1
            await timed.run()
    assert len(await ops.alert_episodes()) == 1


async def test_each_condition_finds_its_queue(ops: Ops, timed: Timed) -> None:
    queue = timed.queue
    for name, condition in {
        "age": "oldest_age > 60s for 0s",
        "backlog": "backlog > 1h for 0s",
        "few": "workers < 1 for 0s",
        "nobody": "no_worker for 0s",
        "memory": "memory > 1MB for 0s",
        "share of memory": "memory > 99% for 0s",
        "late": "schedule_late > 5m for 0s",
        "many": "waiting >= 2 for 0s",
    }.items():
        await ops.set_alert(name, condition)
    looker = evaluator_of(ops)
    await queue.add("n")
    await queue.upsert_job_scheduler("nightly", every=HOUR / SECOND)
    await looker.look()
    assert {rule for rule, _, _ in await states(ops)} == {"backlog", "few", "nobody", "memory"}
    await timed.clock.advance(3 * HOUR)
    await looker.look()
    found = await ops.alert_episodes()
    assert {each.rule for each in found} == {"age", "backlog", "few", "nobody", "memory", "late"}
    texts = {each.rule: each.text for each in found}
    assert texts["age"] == f"the oldest job of {queue.name} has waited 3 h"
    assert texts["backlog"] == f"jobs of {queue.name} wait and none ends"
    assert texts["nobody"] == f"jobs of {queue.name} wait and it has no worker"
    assert "late" in texts["late"]
    assert (await ops.overview()).verdict == "stopped"


async def test_failures_have_a_share_and_new_groups(storage: Storage, queue: AnyQueue, name: str) -> None:
    async def fail(job: AnyJob) -> None:
        raise ValueError(f"{job.data} is bad")

    async with Ops(storage) as ops:
        await queue.connect()
        await ops.set_alert("share", "failure_share > 10% for 0s", queues=["q-*"])
        await ops.set_alert("new", "new failure group")
        looker = evaluator_of(ops)
        async with worker_of(queue, fail):
            for number in range(4):
                await ended(await queue.add("send", number))
            await looker.look()
            [episode] = await ops.alert_episodes()
            assert (episode.rule, episode.queue, episode.verdict) == ("new", name, "failing")
            assert episode.text.startswith(f"{name} has a new failure: ValueError in send at ")
            assert [group.fingerprint for group in await ops.failures()] == [episode.subject]
            await ended(await queue.add("send", 4))
            await looker.look()
            assert await looker.look() == 0
        assert sorted(rule for rule, _, _ in await states(ops)) == ["new", "share"]
        assert dict(episode.notifications) == {}


async def test_a_receiver_that_fails_gets_the_same_message_again(ops: Ops, timed: Timed, receiver: Receiver) -> None:
    await ops.set_alert("busy", "waiting > 0 for 0s", webhooks=[receiver.url, "http://refused.invalid/x"])
    receiver.replies = [500, 302]
    await timed.queue.add("n")
    assert await evaluator_of(ops).look() == 1
    messages: list[str] = []
    system = await ops.queue("system/alerts")
    for expected in ("attempt 1: the receiver replied 500", "attempt 2: the receiver replied 302", "delivered (204)"):
        await deliver(ops)
        messages.append((await receiver.next()).headers["webhook-id"])
        [episode] = await ops.alert_episodes()
        assert episode.notifications["opened:1"] == expected
        await system.promote_jobs()
    [episode] = await ops.alert_episodes()
    assert len(set(messages)) == 1
    assert receiver.count == 0
    assert episode.notifications["opened:2"].startswith("not permitted: webhooks to refused.invalid are not permitted")
    [letter] = await system.get_dead_letter_jobs()
    assert letter.id == f"{episode.id}:opened:2"


async def test_one_process_evaluates_and_an_outdated_one_is_refused(ops: Ops, timed: Timed) -> None:
    calls = ops._connections.alerts.alerts  # pyright: ignore[reportPrivateUsage]
    assert (await calls.begin("first", 30_000)).fence == 0  # no rule
    await ops.set_alert("busy", "waiting > 0 for 0s")
    first = await calls.begin("first", 30_000)
    assert (await calls.begin("second", 30_000)).fence == 0
    assert (await calls.begin("first", 30_000)).fence == first.fence
    await timed.clock.advance(31 * SECOND)
    second = await calls.begin("second", 30_000)
    assert second.fence > first.fence
    seen = [Observation(timed.queue.name, True, "e1", b"\x80")]
    assert await calls.note(first.fence, "busy", Holds(0, 0), 1, b"", seen) == ["stale"]
    assert await calls.note(second.fence, "gone", Holds(0, 0), 1, b"", seen) == ["stale"]
    assert await calls.note(second.fence, "busy", Holds(0, 0), 1, b"", seen) == ["opened"]
    assert await calls.note(second.fence, "busy", Holds(0, 0), 1, b"", seen) == [""]
    await timed.clock.advance(-HOUR)  # a lease from the future is no lease
    assert (await calls.begin("first", 30_000)).fence > second.fence


async def test_episodes_end_with_their_rule_and_with_their_queue(ops: Ops, timed: Timed, receiver: Receiver) -> None:
    async with Queue[Any, Any]("mail", timed.queue.storage) as mail:
        for queue in (timed.queue, mail):
            await queue.add("n")
        await ops.set_alert("busy", "waiting > 0 for 0s")
        await ops.set_alert("mails", "waiting > 0 for 0s", queues=["ma*"], webhooks=[receiver.url])
        looker = evaluator_of(ops)
        assert await looker.look() == 3
        await ops.remove_alert("busy", reason="noise")
        found = {(each.rule, each.queue): each.ended_by for each in await ops.alert_episodes()}
        assert found == {("mails", "mail"): "", ("busy", "mail"): REMOVED, ("busy", timed.queue.name): REMOVED}
        with pytest.raises(AlertNotFound, match="did you mean 'mails'"):
            await ops.remove_alert("mail")
        await mail.obliterate(force=True)
    await ops.queue_names()  # reads the list again
    assert await looker.look() == 1
    assert await ops.alert_episodes(open_only=True) == []
    await deliver(ops)
    # Two messages that are sent at the same time arrive in any order.
    assert {(await receiver.next()).json["type"] for _ in range(2)} == {"alert.opened", "alert.closed"}
    lines = [(line.action, line.target, line.reason, line.result[:2]) for line in (await ops.audit.read()).lines]
    assert lines[:2] == [("remove alert", "mail", "", "Al"), ("remove alert", "busy", "noise", "ok")]


REMOVED = "the rule was removed"


async def test_a_rule_keeps_what_is_not_set_again(ops: Ops, timed: Timed, receiver: Receiver) -> None:
    first = await ops.set_alert("busy", "waiting > 5", webhooks=[receiver.url], format="slack")
    again = await ops.set_alert("busy", "waiting > 9", queues=[timed.queue.name])
    assert (first.secret is None, again.secret) == (False, None)
    assert again.rule.webhooks == first.rule.webhooks == (receiver.url.partition("/hooks")[0] + "/…",)
    [reply] = await ops.test_alert("busy")
    assert (reply.status, reply.error) == (204, "")
    tested = await receiver.next()
    assert tested.json == {"text": "*Alert busy test*: this is a test of the alert rule busy (waiting &gt; 9 for 1m)"}
    assert verify_webhook(str(first.secret), tested.headers, tested.body).startswith("test.")
    stored = await ops.alerts()
    assert (stored.rules, stored.evaluated_at) == ((again.rule,), None)
    assert "secret-path" not in repr(await ops.audit.read())
    none = await ops.set_alert("busy", "waiting > 9", webhooks=[])
    assert none.rule.webhooks == ()


async def test_a_bad_rule_is_refused_before_anything_is_stored(ops: Ops, timed: Timed, store_keys: list[str]) -> None:
    name = timed.queue.name
    for given, error in (
        ({"condition": "oldest_agge > 60s"}, ValueError),
        ({"condition": "no_worker", "queues": [name + "x"]}, QueueNotFound),
        ({"condition": "no_worker", "webhooks": ["htps://x"]}, ValueError),
        ({"condition": "no_worker", "secret": "x"}, ValueError),
        ({"condition": "no_worker", "note": "a\nb"}, ValueError),
    ):
        with pytest.raises(error):
            await ops.set_alert("rule", **given)  # pyright: ignore[reportArgumentType]
    with pytest.raises(QueueNotFound, match=f"did you mean '{name}'"):
        await ops.set_alert("rule", "no_worker", queues=[name + "x"])
    assert await timed.store.keys() == store_keys


@pytest.fixture
async def store_keys(ops: Ops, timed: Timed) -> list[str]:
    """The keys of the store before the test."""
    return await timed.store.keys()


async def test_a_worker_of_the_core_evaluates_and_delivers(queue: AnyQueue, receiver: Receiver) -> None:
    await queue.add("n")
    async with Ops(queue.storage) as ops:
        await ops.set_alert("busy", "waiting > 0 for 0s", webhooks=[receiver.url])
        async with ops.worker(alert_interval=0.05, webhook_hosts=HOSTS):
            assert (await receiver.next()).json["type"] == "alert.opened"
            await queue.drain()
            assert (await receiver.next()).json["type"] == "alert.closed"
        found = await ops.alerts()
        assert found.evaluated_at is not None
        assert datetime.now(UTC) - found.evaluated_at < timedelta(minutes=1)
        assert await soon(evaluator_of(ops).look()) == 0  # the lease was returned
        assert (await ops.alerts()).evaluator != found.evaluator
