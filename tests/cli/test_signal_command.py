"""The command that signals a job, or resumes a suspended one."""

from __future__ import annotations

from tests.cli.shell import Shell
from tests.support.helpers import AnyJob, AnyQueue, soon, worker_of


async def talk(job: AnyJob) -> list[object]:
    if job.resumed_by is None:
        await job.suspend(signals=["approved"])
    return [job.resumed_by, [one.data for one in job.signals]]


async def reaches(job: AnyJob, state: str) -> None:
    async for update in job.watch():
        if update.state == state:
            return


async def test_a_signal_resumes_a_job(shell: Shell, q: AnyQueue) -> None:
    async with worker_of(q, talk):
        first, second = await q.add("n"), await q.add("n")
        for job in (first, second):
            await soon(reaches(job, "suspended"))
        assert (await shell.run("signal", "q", first.id, "other", "--ttl", "60")).stdout == "buffered\n"
        sent = await shell.json("signal", "q", first.id, "approved", "--data", '{"by": "ada"}')
        assert sent == {"queue": "q", "id": first.id, "resumed": True}
        assert await first.result(10) == ["signal", [{"by": "ada"}]]
        assert (await shell.run("signal", "q", second.id, "--resume")).stdout == "resumed\n"
        assert await second.result(10) == ["operator", []]
    code, said = await shell.fails("signal", "q", first.id, "approved")
    assert (code, "the job is completed" in said) == (5, True)
    assert (await shell.fails("signal", "q", "nope", "approved"))[0] == 4
    for wrong in ((), ("a", "--resume"), ("a", "--data", "{")):
        assert (await shell.fails("signal", "q", first.id, *wrong))[0] == 2
