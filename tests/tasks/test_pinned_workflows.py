"""A pinned run is continued only by workers with the code that it was started with."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import GlideMQ, Workflow, workflows
from glidemq_async.storage import Storage
from tests.support.helpers import PATIENCE, reaches


def app_of(storage: Storage, name: str, answer: int, **options: Any) -> tuple[GlideMQ[Any], Workflow[[], int]]:
    """Return an app whose workflow has the code of this answer."""
    mq = GlideMQ(storage, queue=name)

    if answer == 1:

        @mq.workflow(**options)
        async def order() -> int:
            await workflows.receive("go")
            return 1

        return mq, order

    @mq.workflow(name="order", **options)
    async def changed() -> int:
        await workflows.receive("go")
        return 2

    return mq, changed


@pytest.mark.parametrize("version", [None, 1])
async def test_a_pinned_run_waits_for_a_worker_with_its_code(storage: Storage, name: str, version: int | None) -> None:
    old, order = app_of(storage, name, 1, new_code="pin", version=version)
    async with old:
        run = await order.start()
        await run.signal("go")
        new, changed = app_of(storage, name, 2, new_code="pin", version=None if version is None else 2)
        assert order.name.startswith("order@")
        assert order.name != changed.name
        async with new, new.worker():
            await reaches(run.job, "delayed")
            job = await old.queue(name).get_job(run.id)
            assert job is not None
            assert order.name in str(job.failed_reason)
        async with old.worker():
            assert await run.result(PATIENCE) == 1


async def test_other_runs_continue_with_new_code(storage: Storage, name: str) -> None:
    old, order = app_of(storage, name, 1, new_code="continue")
    async with old:
        run = await order.start()
        assert order.name == "order"
    new, _ = app_of(storage, name, 2)
    async with new, new.worker():
        await new.queue(name).signal(run.id, "go")
        job = await new.queue(name).get_job(run.id)
        assert job is not None
        assert await job.result(PATIENCE) == 2


def test_a_bad_choice_is_refused() -> None:
    mq = GlideMQ("memory://")
    with pytest.raises(ValueError, match="new_code must be one of continue, pin, got 'wait'"):

        @mq.workflow(new_code="wait")  # type: ignore[call-overload, untyped-decorator]
        async def order() -> None: ...
