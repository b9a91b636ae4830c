"""The filters of `glidemq jobs` and `glidemq find` select the jobs that `Queue.find` selects."""

from __future__ import annotations

import pytest

from glidemq_async import Queue
from tests.cli.shell import Shell
from tests.support.helpers import AnyJob, AnyQueue, ended, worker_of

FILTERS = (
    "",
    "state:failed",
    "data.n:>1 -state:failed,completed",
    "name:b* error:NOT",
    "data.tags:x",
    'data.n:"2"',
    "bad",
    "attempts:>=1 ended:<1h",
    "queue:q id:1,3",
    "queue:other",
)


async def handler(job: AnyJob) -> object:
    if job.name == "bad":
        raise ValueError("not now")
    return job.data


async def filled(q: AnyQueue) -> None:
    """Let some jobs end, and leave others."""
    async with worker_of(q, handler):
        for number, name in enumerate(("bad", "good", "bad")):
            await ended(await q.add(name, {"n": number, "tags": ["x"]}))
    for number in range(3):
        await q.add("good", {"n": number}, delay=3_600)


@pytest.mark.parametrize("text", FILTERS)
async def test_a_filter_selects_the_same_jobs(shell: Shell, q: AnyQueue, text: str) -> None:
    await filled(q)
    wanted = [job.id for job in await q.find(text)]
    found = await shell.json("jobs", "q", text, "--limit", "100")
    assert ([job["id"] for job in found["jobs"]], found["more"]) == (wanted, False)
    everywhere = await shell.json("find", text, "--limit", "100")
    assert [job["id"] for job in everywhere["jobs"] if job["queue"] == "q"] == wanted


async def test_a_filter_may_begin_with_a_negation(shell: Shell, q: AnyQueue) -> None:
    await q.add("n", job_id="a")
    assert "a" in (await shell.run("jobs", "q", "--", "-state:failed")).stdout
    assert (await shell.run("jobs", "q", "--", "-state:waiting")).stdout == "no jobs\n"


async def test_every_queue_is_searched(shell: Shell, q: AnyQueue) -> None:
    await q.add("n", job_id="a")
    async with Queue("other", q.storage, prefix="glide") as other:
        await other.add("n", job_id="b")
    assert [(job["queue"], job["id"]) for job in (await shell.json("find", "name:n"))["jobs"]] == [
        ("other", "b"),
        ("q", "a"),
    ]
    shown = await shell.run("find", "name:n", "--limit", "1")
    assert (len(shown.stdout.splitlines()), "the first job;" in shown.stderr) == (2, True)
    assert (await shell.run("find", "nothing")).stdout == "no jobs\n"


async def test_mistakes_are_shown(shell: Shell, q: AnyQueue) -> None:
    await q.add("n")
    for arguments in (("jobs", "q"), ("find",)):
        code, said = await shell.fails(*arguments, "stat:failed")
        assert (code, "did you mean 'state'?" in said) == (2, True)
    code, said = await shell.fails("jobs", "q", "name:n", "--state", "waiting")
    assert (code, "either a filter or the options" in said.replace("\n", " ")) == (2, True)
