"""Commands that change all jobs that match a filter, and `glidemq operations`."""

from __future__ import annotations

from glidemq_async import UnrecoverableError
from tests.cli.shell import Shell
from tests.support.helpers import AnyJob, AnyQueue, counts, ended, worker_of


async def broken(job: AnyJob) -> None:
    raise UnrecoverableError("TimeoutError: no reply")


async def failures(q: AnyQueue, count: int) -> None:
    async with worker_of(q, broken, concurrency=count):
        for job in await q.add_bulk([("send", {"n": number}) for number in range(count)]):
            await ended(job)


async def test_matching_jobs_are_retried_after_a_preview(shell: Shell, q: AnyQueue) -> None:
    await failures(q, 4)
    code, said = await shell.fails("retry", "--filter", "state:failed data.n:>=1")
    assert (code, "retry: 3 jobs match" in said, "--yes" in said) == (5, True, True)
    shown = await shell.run("retry", "q", "--filter", "state:failed data.n:>=1", "--dry-run")
    assert (shown.returncode, "retry: 3 jobs match" in shown.stdout, "ticket" in shown.stdout) == (0, True, True)
    assert await counts(q) == {"failed": 4}
    done = await shell.run("retry", "--filter", "state:failed data.n:>=1", "--yes", "--reason", "the server is back")
    assert (done.returncode, done.stdout) == (0, "retry done: 3 of 3\n"), done.stderr
    assert await counts(q) == {"failed": 1, "waiting": 3}
    [line] = (await shell.json("audit", "--limit", "1"))["audit"]
    assert (line["action"], line["count"], line["reason"]) == ("retry", 3, "the server is back")


async def test_jobs_that_cannot_change_are_counted(shell: Shell, q: AnyQueue) -> None:
    await failures(q, 1)
    await q.add("late", delay=600)
    found = (await shell.json("promote", "q", "--filter", "", "--yes"))["operation"]
    assert (found["count"], found["done"], sum(found["refused"].values())) == (2, 1, 1)


async def test_jobs_are_moved_cancelled_and_deleted(shell: Shell, q: AnyQueue) -> None:
    for name in ("a", "b", "c"):
        await q.add(name, job_id=name, delay=600)
    await shell.json("add", "other", "n")
    assert (await shell.run("operations", "change", "move", "id:a", "--to", "other", "--yes")).returncode == 0
    assert (await shell.run("revoke", "--filter", "id:b", "--yes")).returncode == 0
    assert (await shell.run("remove", "--filter", "id:c", "--yes")).returncode == 0
    assert {job.id: job.state for job in await q.search_jobs()} == {"b": "failed"}
    listed = (await shell.json("operations", "list"))["operations"]
    assert [one["action"] for one in listed] == ["delete", "cancel", "move"]
    assert (await shell.run("operations", "list")).stdout.count("done") >= 3
    assert (await shell.json("operations", "show", listed[0]["id"]))["operation"] == listed[0]


async def test_an_operation_is_started_and_cancelled(shell: Shell, q: AnyQueue) -> None:
    await failures(q, 1)
    preview = (await shell.json("retry", "--filter", "state:failed", "--dry-run"))["preview"]
    code, _ = await shell.fails("operations", "start", preview["operation_id"], "--ticket", "wrong")
    assert code == 5
    started = await shell.json("operations", "start", preview["operation_id"], "--ticket", preview["ticket"])
    assert started["operation"]["state"] == "running"
    cancelled = await shell.run("operations", "cancel", preview["operation_id"])
    assert cancelled.stdout.startswith("retry cancelled: 0 of 1")
    assert (await shell.fails("operations", "show", "nope"))[0] == 4
    assert await counts(q) == {"failed": 1}


async def test_a_filter_excludes_other_choices(shell: Shell, q: AnyQueue) -> None:
    for wrong in (["q", "1", "--filter", "x"], ["--all"], ["--filter", "x", "--all"]):
        assert (await shell.run("retry", *wrong)).returncode == 2, wrong
    assert (await shell.run("remove", "q")).returncode == 2
    assert (await shell.fails("remove", "--filter", "nme:x", "--yes"))[0] == 2


async def test_a_job_is_explained(shell: Shell, q: AnyQueue) -> None:
    await q.add("n", job_id="a", delay=600)
    await q.pause()
    shown = await shell.run("explain", "q", "a")
    found = (await shell.json("explain", "q", "a"))["explanation"]
    assert shown.stdout.splitlines()[0] == found["summary"]
    assert {gate["kind"] for gate in found["gates"]} >= {"delayed"}
    assert (await shell.fails("explain", "q", "nope"))[0] == 4
