"""`glidemq workflows` lists, shows and changes the runs of workflows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import GlideMQ, JobFailed, workflows
from glidemq_async.tasks.workflows import RunHandle
from glidemq_async.workflows import waiting
from tests.cli.shell import Shell
from tests.support.helpers import PATIENCE, AnyQueue, reaches

failing: set[str] = set()
calls: list[str] = []


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    failing.clear()
    calls.clear()
    monkeypatch.setattr(waiting, "GRACE", 0.02)


def app(q: AnyQueue) -> tuple[GlideMQ[Any], Any, Any]:
    mq: GlideMQ[Any] = GlideMQ(q.storage, queue="q")

    @mq.step
    async def reserve(item: str) -> str:
        calls.append("reserve")
        return f"{item}!"

    @mq.step
    async def ship(parcel: str) -> str:
        calls.append("ship")
        if "ship" in failing:
            raise ValueError("no \x1b[31mdriver")
        return parcel

    @mq.workflow
    async def order(item: str) -> str:
        return await ship(await reserve(item))

    @mq.workflow
    async def publish() -> object:
        return (await workflows.receive("approved", timeout="1d")).data

    return mq, order, publish


async def ends(run: RunHandle[Any]) -> None:
    with suppress(JobFailed):
        await run.result(PATIENCE)


async def test_runs_are_listed_and_shown(shell: Shell, q: AnyQueue) -> None:
    mq, order, publish = app(q)
    assert (await shell.run("workflows", "list", "q")).stdout == "no runs\n"
    failing.add("ship")
    async with mq, mq.worker():
        failed = await order.start("book", id="first")
        await ends(failed)
        waits = await publish.start(id="second")
        await reaches(waits, "suspended")
        failing.clear()
        await ends(await order.start("pen", id="third"))
        await q.add("order", {"a": ["no steps"], "k": {}}, delay=3_600)
        listed = await shell.json("workflows", "list", "q")
        assert {run["id"]: (run["state"], run["steps"], run["waits_for"]) for run in listed["runs"]} == {
            "first": ("failed", 1, None),
            "second": ("suspended", 1, ["approved"]),
        }
        table = (await shell.run("workflows", "list", "q")).stdout
        assert "waits for approved until" in table
        assert "\x1b[31m" not in table
        completed = await shell.json("workflows", "list", "q", "state:completed")
        assert [run["id"] for run in completed["runs"]] == ["third"]
        shown = await shell.json("workflows", "show", "q", "first")
        assert [(one["name"], one["arguments"], one["result"]) for one in shown["recorded"]] == [
            ("reserve", [["book"], {}], "book!")
        ]
        assert "reserve" in (await shell.run("workflows", "show", "q", "first")).stdout
        assert (await shell.run("workflows", "send", "q", "second", "approved", "--data", "7")).stdout == "resumed\n"
        assert await waits.result(PATIENCE) == 7
    assert (await shell.fails("workflows", "show", "q", "nope"))[0] == 4


async def test_runs_are_changed_by_id_and_by_filter(shell: Shell, q: AnyQueue) -> None:
    mq, order, publish = app(q)
    failing.add("ship")
    async with mq, mq.worker():
        runs = [await order.start("book", id=f"r{number}") for number in range(3)]
        for run in runs:
            await ends(run)
        failing.clear()
        assert (await shell.run("workflows", "retry", "q", "r0")).stdout == "retried 1\n"
        assert await runs[0].result(PATIENCE) == "book!"
        preview = (await shell.run("workflows", "retry", "q", "--filter", "state:failed")).stdout
        assert preview.splitlines()[0].startswith("2 runs would be retried: r")
        assert [await run.state() for run in runs] == ["completed", "failed", "failed"]
        assert (await shell.json("workflows", "retry", "q", "--filter", "state:failed", "--yes"))["retried"] == 2
        for run in runs:
            assert await run.result(PATIENCE) == "book!"
        assert calls.count("reserve") == 3
        assert (await shell.run("workflows", "restart", "q", "r1", "r2")).stdout == "restarted 2\n"
        await ends(runs[1])
        await ends(runs[2])
        assert calls.count("reserve") == 5
        forked = await shell.json("workflows", "fork", "q", "r0", "--before", "ship", "--id", "copy")
        assert (forked["id"], forked["forked_from"]) == ("copy", "r0")
        fork: RunHandle[Any] = RunHandle(await existing(q, "copy"))
        assert await fork.result(PATIENCE) == "book!"
        assert calls.count("reserve") == 5
        waits = await publish.start(id="waits")
        await reaches(waits, "suspended")
        cancelled = await shell.run("workflows", "cancel", "q", "waits", "--reason", "not needed")
        assert cancelled.stdout == "cancelled 1\n"
        with pytest.raises(JobFailed, match="revoked: not needed"):
            await waits.result(PATIENCE)


async def test_what_does_not_fit_is_refused(shell: Shell, q: AnyQueue) -> None:
    mq, order, _ = app(q)
    async with mq, mq.worker():
        await ends(await order.start("book", id="r"))
        for command in ("retry", "accept", "cancel"):
            code, said = await shell.fails("workflows", command, "q", "r")
            assert (code, said.startswith("refused r: cannot")) == (5, True), said
        assert (await shell.fails("workflows", "retry", "q", "r", "--filter", "x"))[0] == 2
        assert (await shell.fails("workflows", "retry", "q"))[0] == 2
        assert (await shell.fails("workflows", "retry", "q", "r", "nope"))[0] == 4
        assert (await shell.run("workflows", "retry", "q", "--filter", "name:x")).stdout == "no run fits the filter\n"


async def existing(q: AnyQueue, job_id: str) -> Any:
    found = await q.get_job(job_id)
    assert found is not None
    return found


APP = """
from glidemq_async import GlideMQ, workflows

mq = GlideMQ()


@mq.step
async def reserve(item: str) -> str:
    return item


@mq.workflow(queue="q")
async def order(item: str) -> object:
    await reserve(item{change})
    return (await workflows.receive("approved", timeout="1d")).data
"""


async def test_runs_are_exported_and_checked(shell: Shell, q: AnyQueue, tmp_path: Path) -> None:
    mq: GlideMQ[Any] = GlideMQ(q.storage, queue="q")

    @mq.step
    async def reserve(item: str) -> str:
        return item

    @mq.workflow
    async def order(item: str) -> object:
        await reserve(item)
        return (await workflows.receive("approved", timeout="1d")).data

    async with mq, mq.worker():
        for number in range(3):
            await reaches(await order.start("book", id=f"r{number}"), "suspended")
    exported = await shell.run("workflows", "export", "q")
    assert (len(exported.stdout.splitlines()), exported.stderr) == (3, "exported 3 runs\n")
    runs = tmp_path / "runs.jsonl"
    runs.write_text(exported.stdout)
    for name, change in (("app_same", ""), ("app_changed", ' + "s"')):
        (tmp_path / f"{name}.py").write_text(APP.replace("{change}", change))
    directory = ("--app-dir", str(tmp_path))
    good = await shell.json("workflows", "check", "app_same:mq", str(runs), *directory)
    assert sorted((one["id"], one["verdict"], one["fits"]) for one in good["runs"]) == [
        (f"r{number}", "same", True) for number in range(3)
    ]
    bad = await shell.run("workflows", "check", "app_changed:mq", str(runs), *directory, "--json")
    assert bad.returncode == 1
    assert "reserve('book')" in bad.stdout
    assert "reserve('books')" in bad.stdout
    assert (await shell.fails("workflows", "check", "app_same:mq", str(tmp_path / "app_same.py"), *directory))[0] == 2


async def test_runs_are_drawn(shell: Shell, q: AnyQueue, tmp_path: Path) -> None:
    mq, order, _ = app(q)
    async with mq, mq.worker():
        run = await order.start("book", id="order-1")
        await ends(run)
    drawing = tmp_path / "order.svg"
    done = await shell.run("workflows", "graph", "q", "order-1", "--svg", str(drawing))
    assert done.stdout == f"wrote {drawing}: 1 job\n"
    assert drawing.read_text().startswith("<svg")
    assert "flowchart LR" in (await shell.run("workflows", "graph", "q", "order-1", "--mermaid")).stdout
    assert "completed" in (await shell.run("workflows", "graph", "q", "order-1")).stdout
    assert (await shell.json("workflows", "graph", "q", "order-1"))["states"] == {"completed": 1}
    shown = (await shell.run("workflows", "waterfall", "q", "order-1")).stdout
    assert "reserve" in shown
    assert "ship" in shown
    assert (await shell.run("workflows", "waterfall", "q", "order-1", "--svg", str(drawing))).stdout.startswith("wrote")
    found = await shell.json("workflows", "waterfall", "q", "order-1")
    assert [row["kind"] for row in found["rows"]] == ["job", "attempt", "step", "step"]
