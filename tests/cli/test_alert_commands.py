"""`glidemq alerts`."""

from __future__ import annotations

from glidemq_async.ops import Ops
from glidemq_async.ops.alerts.evaluator import Evaluator
from tests.cli.shell import Shell
from tests.ops.receiver import receiving
from tests.support.helpers import AnyQueue


async def test_rules_are_added_tested_listed_and_removed(shell: Shell, q: AnyQueue) -> None:
    await q.add("n")
    async with receiving() as receiver:
        url = ("--webhook", receiver.url)
        added = await shell.run("alerts", "add", "busy", "waiting > 0 for 0s", "--queue", "q*", *url, "--note", "mail")
        assert added.stdout.splitlines()[0] == "rule busy: waiting > 0 for 0s in q*"
        assert "shown only once: whsec_" in added.stdout
        assert "accepted (204)" in (await shell.run("alerts", "test", "busy")).stdout
        receiver.replies = [500]
        assert (await shell.run("alerts", "test", "busy")).returncode == 1
    listed = (await shell.run("alerts", "list")).stdout
    assert "waiting > 0 for 0s" in listed
    assert "not evaluated yet" in listed
    async with Ops(q.storage) as ops:
        await Evaluator(ops._connections).look()  # pyright: ignore[reportPrivateUsage]
    [episode] = (await shell.json("alerts", "episodes", "--open"))["episodes"]
    assert (episode["rule"], episode["queue"], episode["text"]) == ("busy", "q", "1 job of q waits")
    assert "busy" in (await shell.run("alerts", "episodes")).stdout
    for wrong, code in ((("add", "x", "wating > 5"), 2), (("add", "x", "no_worker", "--queue", "qq"), 4)):
        assert (await shell.fails("alerts", *wrong))[0] == code
    assert (await shell.json("alerts", "remove", "busy"))["removed"] == "busy"
    assert (await shell.fails("alerts", "remove", "busy"))[0] == 4
    lines = (await shell.json("audit"))["audit"]
    assert [line["action"] for line in reversed(lines)][:2] == ["set alert", "test alert"]
