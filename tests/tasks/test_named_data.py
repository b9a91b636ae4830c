"""Jobs of tasks are found and reported by the names of their arguments."""

from __future__ import annotations

import pytest

from glidemq_async import GlideMQ
from glidemq_async.testing import Harness


async def test_added_calls_are_found_by_argument() -> None:
    mq = GlideMQ("memory://", queue="mail")

    @mq.task
    async def send(to: str, subject: str = "hi") -> None: ...

    async with Harness() as harness, mq:
        queue = mq.queue("mail")
        await send.add("ada@x")
        await send.add(to="bob@x", subject="b")
        for wanted in ({"to": "ada@x"}, {"subject": "b"}):
            assert len(await harness.assert_added(queue, "send", data=wanted)) == 1
        with pytest.raises(AssertionError, match=r"send \{'to': 'ada@x'\}") as raised:
            await harness.assert_added(queue, "send", data={"to": "eve@x"})
        assert "'k'" not in str(raised.value)


async def test_data_of_a_call_change_by_argument() -> None:
    mq = GlideMQ("memory://", queue="mail")

    @mq.task
    async def send(to: str, subject: str = "hi") -> str:
        return f"{subject} {to}"

    async with Harness() as harness, mq:
        job = await send.add("ada@x")
        await mq.worker().run(until_empty=True)  # describes the task
        again = await send.options(delay=60).add("ada@x")
        await again.update_data({"to": "bob@x"})
        assert again.data == {"a": ["bob@x"], "k": {}}
        await again.update_data({"a": ["eve@x"], "k": {"subject": "a"}})
        await again.update_data({"subject": "b"})
        await again.promote()
        await mq.worker().run(until_empty=True)
        assert [await one.result(5) for one in (job, again)] == ["hi ada@x", "b eve@x"]
        assert harness is not None
