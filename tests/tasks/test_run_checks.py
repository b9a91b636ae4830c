"""Exported runs are replayed with changed code, and each change has the expected verdict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import GlideMQ, workflows
from glidemq_async.storage import Storage
from glidemq_async.tasks.run_checks import check_exported, export_runs
from glidemq_async.testing import check_runs
from glidemq_async.workflows import waiting
from glidemq_async.workflows.replaying import ExportedRun

executed: list[str] = []


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    executed.clear()
    monkeypatch.setattr(waiting, "GRACE", 0.02)


def app(storage: Storage | None, name: str, make: Callable[[Any], Any]) -> tuple[GlideMQ[Any], Any]:
    """Return an app with the workflow `order`, which `make` returns for its steps."""
    mq: GlideMQ[Any] = GlideMQ(storage, queue=name)

    class Steps:
        """The steps of the workflow."""

        @staticmethod
        @mq.step
        async def reserve(item: str) -> str:
            executed.append("reserve")
            return f"{item}!"

        @staticmethod
        @mq.step
        async def charge(cents: int) -> int:
            executed.append("charge")
            return cents

        @staticmethod
        @mq.step
        async def mail(to: str) -> str:
            executed.append("mail")
            return to

    return mq, mq.workflow(name="order")(make(Steps))


def original(steps: Any) -> Any:
    async def order(cents: int) -> str:
        await steps.reserve("book")
        await asyncio.gather(steps.charge(cents), steps.charge(cents + 1))
        await workflows.receive("approved")
        return str(await steps.mail("ada"))

    return order


def reordered(steps: Any) -> Any:
    async def order(cents: int) -> str:
        async with asyncio.TaskGroup() as group:
            group.create_task(steps.charge(cents + 1))
            group.create_task(steps.charge(cents))
        await steps.reserve("book")
        await workflows.receive("approved")
        return str(await steps.mail("bob"))

    return order


def inserted(steps: Any) -> Any:
    async def order(cents: int) -> str:
        await steps.reserve("book")
        await steps.mail("new")
        await asyncio.gather(steps.charge(cents), steps.charge(cents + 1))
        await workflows.receive("approved")
        return "sent"

    return order


def deleted(steps: Any) -> Any:
    async def order(cents: int) -> str:
        await steps.reserve("book")
        return str(cents)

    return order


def other_amount(steps: Any) -> Any:
    async def order(cents: int) -> str:
        await steps.reserve("book")
        await asyncio.gather(steps.charge(cents + 5), steps.charge(cents + 1))
        await workflows.receive("approved")
        return str(await steps.mail("ada"))

    return order


def broken(steps: Any) -> Any:
    async def order(cents: int) -> str:
        await steps.reserve("book")
        raise KeyError(cents)

    return order


def catches(steps: Any) -> Any:
    async def order(cents: int) -> str:
        try:
            await steps.reserve("pen")
        except asyncio.CancelledError:
            await steps.mail("undo")
            raise
        return ""

    return order


CHANGES = {
    "same": original,
    "reordered": reordered,
    "new steps": inserted,
    "not asked any more": deleted,
    "other arguments": other_amount,
    "raises": broken,
}


async def exported(storage: Storage, name: str) -> list[ExportedRun]:
    mq, order = app(storage, name, original)
    async with mq, mq.worker():
        run = await order.start(5)
        async with asyncio.timeout(10):
            async for update in run.job.watch():
                if update.state == "suspended":
                    break
        found = [one async for one in export_runs(mq.queue(name))]
    executed.clear()
    return [ExportedRun.from_json(one.to_json()) for one in found]


@pytest.mark.parametrize("change", CHANGES)
async def test_each_change_has_its_verdict(storage: Storage, name: str, change: str) -> None:
    runs = await exported(storage, name)
    mq, _ = app(None, name, CHANGES[change])
    [found] = await check_exported(mq, runs)
    assert found.verdict == ("same" if change == "reordered" else change), found
    assert found.fits == (change in {"same", "reordered", "new steps"})
    assert executed == []
    if change == "other arguments":
        assert (found.left, found.asked) == (("charge(5)",), ("charge(10)",))
    if change == "not asked any more":
        assert sorted(found.left) == ["charge(5)", "charge(6)"]
    if change == "raises":
        assert found.reason == "KeyError: 5"


async def test_code_that_catches_its_cancellation_executes_no_step(storage: Storage, name: str) -> None:
    runs = await exported(storage, name)
    mq, _ = app(None, name, catches)
    [found] = await check_exported(mq, runs)
    assert (found.verdict, found.asked, executed) == ("other arguments", ("reserve('pen')",), [])


async def test_a_fork_is_checked(storage: Storage, name: str) -> None:
    mq, order = app(storage, name, original)
    async with mq:
        async with mq.worker():
            run = await order.start(5)
            await run.signal("approved")
            await run.result(10)
        await run.fork(before="mail")
        runs = [one async for one in export_runs(mq.queue(name))]
    [found] = await check_exported(mq, runs)
    assert (found.verdict, found.asked) == ("new steps", ("mail('ada')",))


async def test_a_test_lists_the_runs_that_do_not_fit(storage: Storage, name: str, tmp_path: Path) -> None:
    runs = await exported(storage, name)
    path = tmp_path / "runs.jsonl"
    path.write_text("\n".join(one.to_json() for one in runs) + "\n")
    mq, _ = app(None, name, original)
    assert [one.verdict for one in await check_runs(mq, path)] == ["same"]
    mq, _ = app(None, name, other_amount)
    with pytest.raises(AssertionError, match=r"1 of 1 runs do not fit the code:\n  1 \(order\): other arguments"):
        await check_runs(mq, path)
    with pytest.raises(AssertionError, match="no workflow of this name"):
        await check_runs(GlideMQ(), path)
    path.write_text("{}\n")
    with pytest.raises(ValueError, match="not a run of"):
        await check_runs(mq, path)
