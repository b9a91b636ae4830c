"""The commands that change many jobs: promote --all, clean, and the release of a deduplication id."""

from __future__ import annotations

from typing import get_args

from glidemq_async import Deduplication
from glidemq_async.cli import bulk_commands
from glidemq_async.queues.cleaning import CleanState
from tests.cli.shell import Shell
from tests.support.helpers import AnyQueue, counts, echo, ended, worker_of


async def test_many_jobs_are_promoted(shell: Shell, q: AnyQueue) -> None:
    for number in range(5):
        await q.add("n", number, delay=3600 + number)
    assert (await shell.run("promote", "q", "--count", "2")).stdout == "promoted 2\n"
    assert [job.data for job in await q.get_jobs("waiting")] == [0, 1]
    assert await shell.json("promote", "q", "--all") == {"queue": "q", "promoted": 3}
    assert await counts(q) == {"waiting": 5}
    for wrong in (("promote", "q"), ("promote", "q", "1", "--all"), ("promote", "q", "--all", "--count", "1")):
        code, said = await shell.fails(*wrong)
        assert (code, "name jobs, or use --all, --count" in said) == (2, True)


async def test_jobs_are_cleaned(shell: Shell, q: AnyQueue) -> None:
    async with worker_of(q, echo):
        [await ended(job) for job in await q.add_bulk([("n", number) for number in range(4)])]
    await q.add("late", delay=3600)
    assert (await shell.run("clean", "q", "--state", "completed", "--grace", "3600")).stdout == "removed 0\n"
    assert (await shell.run("clean", "q", "--state", "completed", "--limit", "3")).stdout == "removed 3\n"
    assert await shell.json("clean", "q", "-s", "delayed") == {"queue": "q", "removed": 1}
    assert await counts(q) == {"completed": 1}
    code, said = await shell.fails("clean", "q")
    assert (code, "--state" in said) == (2, True)


async def test_a_deduplication_id_is_released(shell: Shell, q: AnyQueue) -> None:
    first = await q.add("n", delay=3600, deduplication=Deduplication("d"))
    assert (await shell.run("release", "q", "d")).stdout == "released d\n"
    assert await shell.fails("release", "q", "d") == (4, "glidemq: no job of queue 'q' owns deduplication id 'd'")
    assert (await q.add("n", deduplication=Deduplication("d"))).id != first.id


def test_the_states_match_the_library() -> None:
    assert get_args(bulk_commands.CleanState) == get_args(CleanState)
