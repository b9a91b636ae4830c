"""The command that signals a job, or resumes a suspended one."""

from __future__ import annotations

from typing import Any

from glidemq_async import GlideMQ, workflows
from tests.cli.shell import Shell
from tests.support.helpers import AnyJob, AnyQueue, reaches, soon, worker_of


async def talk(job: AnyJob) -> list[object]:
    if job.resumed_by is None:
        await job.suspend(signals=["approved"])
    return [job.resumed_by, [one.data for one in job.signals]]


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


async def test_the_reply_of_a_run_is_printed(shell: Shell, q: AnyQueue) -> None:
    mq: GlideMQ[Any] = GlideMQ(q.storage, queue=q.name)

    @mq.workflow
    async def order() -> None:
        asked = await workflows.receive("ask")
        await workflows.reply(asked, {"rooms": asked.data})

    async with mq, mq.worker():
        first, second = await order.start(), await order.start()
        said = (await shell.run("workflows", "send", "q", first.id, "ask", "--data", "2", "--wait", "10")).stdout
        assert said == '{"rooms": 2}\n'
        sent = await shell.json("signal", "q", second.id, "ask", "--wait", "10")
        assert sent == {"queue": "q", "id": second.id, "reply": {"rooms": None}}
    third = await order.task.add()
    code, said = await shell.fails("workflows", "send", "q", third.id, "ask", "--wait", "0.05")
    assert (code, "has not replied" in said) == (1, True)
