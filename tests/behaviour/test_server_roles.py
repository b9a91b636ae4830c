"""The roles of `glidemq acl`: each can do all of its work, and the server refuses everything else."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx2
import pytest

from glidemq_async import (
    FlowJob,
    FlowProducer,
    Job,
    JobFailed,
    JobOptions,
    Queue,
    QueueEvent,
    QueueEvents,
    Topic,
    Worker,
)
from glidemq_async.cli.doctor.server import check_server
from glidemq_async.cli.targets import open_wires
from glidemq_async.errors import StorageUnavailable
from glidemq_async.functions.loader import LIBRARY, function_name, source
from glidemq_async.ops import Ops
from glidemq_async.storage.redis.server import ServerStorage
from glidemq_async.storage.redis.server_roles import ROLES, ServerRole, commands_of_functions, rules_of
from glidemq_async.storage.redis.wire import as_text
from glidemq_async.storage.urls import open_storage
from glidemq_async.web.app import operations_app
from tests.conformance.test_tour import test_every_function_works_here as tour
from tests.lua.effects import READS
from tests.support.helpers import soon
from tests.support.servers import Server, redis7_binary, standalone


@pytest.fixture(params=["redis7", "embedded"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    """A server with a user for each role, and with the library that the deployer has loaded."""
    binary = redis7_binary() if request.param == "redis7" else None
    if request.param == "redis7" and binary is None:
        pytest.skip("no redis-server on the PATH: install Debian's redis-server, or set GLIDEMQ_TEST_REDIS7")
    async with standalone(binary=binary) as running:
        for role in ROLES:
            await running.command("ACL", "SETUSER", role, "reset", "on", ">secret", *rules_of(role))
        async with open_storage(url_of(running, "deployer")):
            pass
        yield running


def url_of(server: Server, role: ServerRole) -> str:
    return f"redis://{role}:secret@127.0.0.1:{server.port}"


async def work(job: Job[Any, Any]) -> Any:
    if job.name == "fails":
        raise ValueError("no")
    await job.log("a line")
    await job.update_progress(0.5)
    return job.data


async def test_each_role_does_its_work(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    producer, serving, operator, viewer = (
        url_of(server, role) for role in ("producer", "worker", "operator", "viewer")
    )
    with caplog.at_level(logging.WARNING, "glidemq_async.storage"):
        worker = Worker("q", work, serving, concurrency=3, dead_letter_queue="dead", lock_duration=1)
        async with worker, Queue[Any, Any]("q", producer) as queue, QueueEvents("q", serving) as events:
            await produce(queue, producer)
            assert isinstance(await soon(anext(aiter(events))), QueueEvent)
            failed = await queue.add("fails")
            with pytest.raises(JobFailed, match="no"):
                await failed.result(20)
            await look(viewer)
        await operate(operator)
    assert [record.getMessage() for record in caplog.records if record.name == "glidemq_async.storage"] == []


async def produce(queue: Queue[Any, Any], url: str) -> None:
    """Do everything that a producer does."""
    assert await queue.add_and_wait("n", 1, wait_timeout=20) == 1
    options = [JobOptions(), JobOptions(delay=0.01), JobOptions(priority=2), JobOptions(key="k")]
    jobs = await queue.add_bulk([("n", number, each) for number, each in enumerate(options, 1)])
    assert [await job.result(20) for job in jobs] == [1, 2, 3, 4]
    late = await queue.add("late", delay=3600)
    await late.revoke()
    await queue.add("late", delay=3600, job_id="late")
    async with FlowProducer(url) as flows:
        tree = await flows.add(FlowJob("parent", "q", children=[FlowJob("n", "q", 1)]))
        await tree.job.result(20)
    async with Topic("news", url) as topic:
        await topic.publish("n", 1)


async def look(url: str) -> None:
    """Read everything that operators see. The user cannot write, so nothing changes."""
    async with Queue[Any, Any]("q", url) as queue, Ops(url) as ops:
        [failed] = [job for job in await queue.get_jobs("failed") if job.name == "fails"]
        assert (await ops.find("state:failed")).jobs
        assert (await ops.overview()).queues
        assert [group.message for group in await queue.get_failure_groups()] == ["no"]
        assert (await queue.explain("late")).gates
        assert await queue.get_job_history(failed.id) is not None
        assert await queue.get_workers()
        assert await queue.get_job_logs(failed.id) == []
        assert (await ops.server()).nodes
        assert (await queue.get_depth()).workers == 1
        assert await queue.check() == []
        with pytest.raises(StorageUnavailable, match=r"\+fcall"):
            await queue.add("n")
        with pytest.raises(StorageUnavailable, match=r"\+fcall"):
            await Queue[Any, Any]("new", url).connect()
        app = operations_app(ops.storage, read_only=True)
        transport = httpx2.ASGITransport(app, client=("127.0.0.1", 1))
        async with (
            app.router.lifespan_context(app),
            httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as browser,
        ):
            for path in ("/", "/queues/q", f"/queues/q/jobs/{failed.id}", "/api/v1/overview", "/audit"):
                assert (await browser.get(path)).status_code == 200, path
    start = QueueEvents("q", url).position
    async with QueueEvents("q", url, after=start) as events:
        assert isinstance(await soon(anext(aiter(events))), QueueEvent)
    async with open_storage(url) as storage:
        assert isinstance(storage, ServerStorage)
        async with open_wires(storage) as [wire]:
            assert [
                each async for each in check_server(wire, ephemeral=True, is_cluster=False) if each.status != "ok"
            ] == []


async def operate(url: str) -> None:
    """Change jobs and queues as an operator."""
    async with Ops(url) as ops, ops.worker():
        preview = await ops.preview("retry", "queue:q state:failed name:fails")
        operation = await ops.start(preview.operation_id, preview.ticket)
        assert (await soon(ops.wait_operation(operation.id))).done == 1
        await ops.pause("q", reason="test")
        await ops.resume("q")
        assert await ops.drain("q", delayed=True) == 2
        ticket = (await ops.preview_obliterate("q")).ticket
        await ops.obliterate("q", ticket, force=True)
        assert await ops.queue_names() == ["dead"]
        await ops.drain("dead")


async def test_an_operator_may_call_every_function(server: Server) -> None:
    async with open_storage(url_of(server, "operator")) as storage:
        await tour(storage, "q")


BASE: Final = "glide:{q}"
FOREIGN: Final = "other:key"
CLAIM, ADD, COUNT = (function_name(each) for each in ("settleAndClaim", "addPlain", "countJobs"))
NOBODY: Final = """
    FLUSHALL|FLUSHDB|KEYS *|CONFIG SET maxmemory 1|FUNCTION FLUSH|FUNCTION DUMP|EVAL x 0|EVAL_RO x 0|SCRIPT FLUSH
    ACL LIST|ACL SETUSER x|CLIENT LIST|CLIENT KILL x:1|SHUTDOWN|SAVE|BGSAVE|REPLICAOF NO ONE|MONITOR|SWAPDB 0 1
    DEBUG JMAP|RANDOMKEY|DBSIZE|PUBLISH glide:x 1|SUBSCRIBE glide:x|PSUBSCRIBE *|SPUBLISH other:x 1
    SSUBSCRIBE other:x|LATENCY RESET|SLOWLOG GET|MEMORY DOCTOR|MODULE LIST|CLUSTER RESET|FAILOVER|SORT glide:x
    DUMP glide:x|RESTORE glide:x 0 x|RENAMENX glide:x glide:y|COPY glide:x glide:y|MIGRATE h 1 glide:x 0 1
    GETDEL glide:x|EXPIREAT glide:x 1|GET other:key|HSET other:key f v|XREAD STREAMS other:key 0|UNLINK other:key
    """
"""Commands that no role may run."""
OF_ROLES: Final[dict[str, set[ServerRole]]] = {
    f"FCALL {CLAIM} 1 {BASE}": {"worker", "operator"},
    f"FCALL {ADD} 1 {BASE}": {"producer", "worker", "operator"},
    f"FCALL {ADD} 1 {FOREIGN}": set(),
    f"FCALL_RO {COUNT} 1 {BASE}": {"producer", "worker", "operator", "viewer"},
    f"FCALL_RO {COUNT} 1 {FOREIGN}": set(),
    f"HSET {BASE}:meta2 f v": {"producer", "worker", "operator"},
    f"HGET {BASE}:meta2 f": {"producer", "worker", "operator", "viewer"},
    f"XREAD STREAMS {BASE}:events 0": {"worker", "operator", "viewer"},
    f"SPUBLISH {BASE}:wake:w 1": {"producer", "worker", "operator"},
    "SCAN 0": {"operator", "viewer"},
    "CONFIG GET save": {"operator", "viewer", "deployer"},
    "INFO": set(ROLES),
    "FUNCTION LOAD x": {"deployer"},
    f"FUNCTION DELETE {LIBRARY}": {"deployer"},
    "FUNCTION LIST": {"operator", "viewer", "deployer"},
}


async def test_the_server_refuses_everything_else(server: Server) -> None:
    async def may(role: ServerRole, command: str) -> bool:
        return as_text(await server.command("ACL", "DRYRUN", role, *command.split())) == "OK"

    nobody = [each.strip() for line in NOBODY.strip().splitlines() for each in line.split("|")]
    allowed = [(role, command) for role in ROLES for command in nobody if await may(role, command)]
    assert allowed == []
    assert {command: {role for role in ROLES if await may(role, command)} for command in OF_ROLES} == OF_ROLES


async def test_a_user_of_one_queue_cannot_use_another_one(server: Server) -> None:
    rules = rules_of("worker", queues=["mine", "mine.dead"])
    await server.command("ACL", "SETUSER", "narrow", "reset", "on", ">secret", *rules)
    url = f"redis://narrow:secret@127.0.0.1:{server.port}"
    async with Queue[int, int]("mine", url) as queue, Worker("mine", work, url, dead_letter_queue="mine.dead"):
        assert await queue.add_and_wait("n", 1, wait_timeout=20) == 1
    with pytest.raises(StorageUnavailable, match="Add to the user: ~glide"):
        await Queue[int, int]("theirs", url).connect()


def test_the_rules_name_the_commands_of_the_library() -> None:
    commands = {name.partition("|")[0].upper() for name in commands_of_functions()}
    viewer = {rule[1:].partition("|")[0].upper() for rule in rules_of("viewer")} & commands
    assert viewer == commands & READS
    registered = source()
    producer = [rule for rule in rules_of("producer") if rule.startswith("+fcall|")]
    assert producer
    assert all(f"register('{rule.rpartition('_')[2]}'" in registered for rule in producer)


def test_names_in_rules_are_not_patterns() -> None:
    rules = rules_of("worker", prefix="a*", queues=["b?"])
    assert rules[2:4] == [r"~a\*:{b\?}*", r"&a\*:{b\?}*"]
    with pytest.raises(ValueError, match="contains a space"):
        rules_of("worker", queues=["my queue"])
