"""Jobs of tasks are found by the names of their arguments, whichever way they were added."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import GlideMQ, Queue
from glidemq_async.storage import Storage


@pytest.fixture
def mq(storage: Storage, name: str) -> GlideMQ[Any]:
    app = GlideMQ(storage, queue=name)

    @app.task
    async def send(to: str, copies: int = 1, *rest: str, urgent: bool = False) -> int:
        return copies

    @app.task
    async def resend(copies: int) -> int:
        return copies

    return app


async def found(queue: Queue[Any, Any], text: str) -> set[str]:
    return {job.id for job in await queue.find(text)}


async def test_an_argument_has_one_name(mq: GlideMQ[Any], storage: Storage, name: str) -> None:
    async with mq:
        queue, send, resend = mq.queue(name), mq.tasks["send"], mq.tasks["resend"]
        await send.options(job_id="by place").add("ada@x", 2)
        await send.options(job_id="by name").add(to="ada@x", urgent=True)
        await send.options(job_id="more").add("bob@x", 2, "third")
        flow = await send.s("eve@x").then(resend).add()
        expected = {
            "data.to:ada@x": {"by place", "by name"},
            "data.copies:2": {"by place", "more"},
            "data.urgent:true": {"by name"},
            "data.#3:third": {"more"},
            "data.to:eve@x -name:resend": {job.id for job in await queue.find("data.to:eve@x")},
        }
        assert {text: await found(queue, text) for text in expected} == expected
        assert expected["data.to:eve@x -name:resend"]
        assert [job.id for job in await queue.find("name:resend")] == [flow.id]
        # Another client learns the names from the workers.
        async with Queue[Any, Any](name, storage) as other:
            assert await found(other, "data.to:ada@x") == {"by name"}
            assert await found(other, "data.#1:ada@x") == {"by place"}
            async with mq.worker():
                await flow.result(10)
            assert await found(other, "data.to:ada@x") == {"by place", "by name"}
