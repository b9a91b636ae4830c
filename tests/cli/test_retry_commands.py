"""The commands that run ended jobs again: retry, and dlq --replay."""

from __future__ import annotations

from typing import Any

from glidemq_async import UnrecoverableError
from tests.cli.shell import Shell
from tests.support.helpers import AnyJob, AnyQueue, counts, ended, worker_of


async def handler(job: AnyJob) -> Any:
    if job.name == "bad":
        raise UnrecoverableError("no such page")
    return job.data


async def test_a_replay_without_a_limit_replays_all(shell: Shell, q: AnyQueue) -> None:
    async with worker_of(q, handler, concurrency=10):
        [await ended(job) for job in await q.add_bulk([("bad", number) for number in range(25)])]
    assert await shell.json("dlq", "q", "--replay", "--limit", "3") == {
        "queue": "q",
        "replayed": 3,
        "left": 22,
        "more": True,
    }
    done = await shell.run("dlq", "q", "--replay")
    assert (done.stdout, done.stderr) == ("replayed 22\n", "")
    assert await counts(q) == {"waiting": 25}


async def test_a_completed_job_is_not_retried_by_default(shell: Shell, q: AnyQueue) -> None:
    async with worker_of(q, handler):
        completed, failed = [await ended(job) for job in await q.add_bulk([("good", 1), ("bad", 2)])]
    code, said = await shell.fails("retry", "q", failed.id, completed.id)
    assert (code, "is completed, not failed; --force runs it again" in said) == (5, True)
    assert await counts(q) == {"completed": 1, "failed": 1}
    assert (await shell.json("retry", "q", completed.id, "--state", "completed"))["retried"] == 1
    assert (await shell.json("retry", "q", failed.id))["retried"] == 1
    assert await counts(q) == {"waiting": 2}


async def test_a_completed_job_is_retried_by_force(shell: Shell, q: AnyQueue) -> None:
    async with worker_of(q, handler):
        completed = await ended(await q.add("good"))
    code, said = await shell.fails("retry", "q", "--all", "--force")
    assert (code, "it is for named jobs" in said) == (2, True)
    assert (await shell.json("retry", "q", completed.id, "--force"))["retried"] == 1
    assert await counts(q) == {"waiting": 1}
