"""The command that lists topics and their subscriptions."""

from __future__ import annotations

from glidemq_async import BroadcastWorker, Topic
from tests.cli.shell import Shell
from tests.support.helpers import AnyQueue, echo


async def test_topics_are_listed_with_the_lag_of_their_subscriptions(shell: Shell, q: AnyQueue) -> None:
    assert (await shell.run("topics")).stdout == "no topics\n"
    async with Topic("orders", q.storage, max_messages=5) as topic, Topic("other", q.storage) as other:
        worker = BroadcastWorker("orders", echo, q.storage, subscription="s", subjects=["a.>"], handle_signals=False)
        async with worker:
            await topic.publish_many([("a.b", number) for number in range(3)])
            await worker.until_empty()
        await topic.publish_many([("a.b", number) for number in range(6)])
        await other.publish("a")
    found = await shell.json("topics")
    assert [(one["name"], one["published"], one["stored"]) for one in found["topics"]] == [
        ("orders", 9, 5),
        ("other", 1, 1),
    ]
    [subscription] = found["topics"][0]["subscriptions"]
    assert (subscription["queue"], subscription["patterns"], subscription["lag"]) == ("orders.s", ["a.>"], 6)
    lines = (await shell.run("topics", "orders")).stdout.splitlines()
    assert "orders.s" in lines[-1]
