"""The commands that show why jobs fail, what a job has done, and who has set the settings of a queue."""

from __future__ import annotations

import getpass
import re
import socket
from typing import Any

from glidemq_async import Job
from glidemq_async.functions.settings import Author
from glidemq_async.queues.limits import change_limits
from tests.cli.shell import Shell
from tests.support.helpers import AnyQueue, ended, worker_of


async def fail(job: Job[Any, Any]) -> None:
    """Write a log line, and fail."""
    await job.log("the disk is full")
    raise OSError("no space")


async def test_failures_are_grouped_and_the_history_of_a_job_is_shown(shell: Shell, q: AnyQueue) -> None:
    assert (await shell.run("failures")).stdout == "no failures\n"
    waiting = await q.add("totals")
    assert (await shell.run("history", "q", waiting.id)).stdout == "the job has not run yet\n"
    async with worker_of(q, fail):
        await ended(waiting)
    [group] = (await shell.json("failures", "q"))["failures"]
    assert (group["queue"], group["name"], group["error_type"], group["count"]) == ("q", "totals", "OSError", 1)
    listed = await shell.json("failures")
    assert (listed["failures"], listed["more"]) == ([group], False)
    assert group["fingerprint"] in (await shell.run("failures")).stdout
    assert (await shell.fails("failures", "nowhere"))[0] == 4
    await shell.json("retry", "q", waiting.id, "--reason", "the disk was cleaned")
    document = await shell.json("history", "q", waiting.id)
    run = document["history"][0]
    assert (document["queue"], document["id"], run["kind"], run["outcome"]) == ("q", waiting.id, "attempt", "failed")
    assert run["log"][0][1] == "the disk is full"
    assert re.fullmatch(r"\S+:\d\d(\.\d{3})?Z", run["started_at"])
    said = (await shell.run("history", "q", waiting.id)).stdout
    assert "failed" in said
    assert "the disk is full" in said
    assert "no space" in said
    assert (await shell.fails("history", "q", "unknown"))[0] == 4


async def test_settings_of_operators_hold_over_the_code_until_they_are_released(shell: Shell, q: AnyQueue) -> None:
    me = f"{getpass.getuser()}@{socket.gethostname()}"
    code = Author("code", "worker-1")
    await shell.json("limits", "q", "--concurrency", "2", "--reason", "the provider is slow")
    await shell.json("limits", "q", "--key", "ada", "--rate", "5/1")
    await shell.json("pause", "q", "--reason", "a storm")
    await change_limits(q, code, concurrency=8)
    assert await q.get_global_concurrency() == 2
    rows = {(one["name"], one["key"]): one for one in (await shell.json("settings", "q"))["settings"]}
    held = rows["concurrency", None]
    assert (held["value"], held["declared"], held["origin"], held["who"]) == ("2", "8", "operator", me)
    assert held["note"] == "the provider is slow"
    assert (rows["paused", None]["who"], rows["paused", None]["note"]) == (me, "a storm")
    assert rows["rate", "ada"]["origin"] == "operator"
    assert me in (await shell.run("settings", "q")).stdout
    after = await shell.json("settings", "q", "--release", "concurrency", "--reason", "it is fast again")
    assert {(one["name"], one["value"], one["origin"]) for one in after["settings"]} >= {("concurrency", "8", "code")}
    assert await q.get_global_concurrency() == 8
    await shell.json("settings", "q", "--release", "rate", "--key", "ada")
    assert (await q.get_key_limits("ada")).rate_limit is None
    assert (await shell.fails("settings", "q", "--release", "concurrency"))[0] == 5
    assert (await shell.run("settings", "q", "--key", "ada")).returncode == 2
    await shell.json("settings", "q", "--release", "paused")
    rules = ("--events-off", "active,progress", "--progress-interval", "5s")
    ruled = await shell.json("settings", "q", *rules, "--event-content", "value", "--reason", "the disk is full")
    assert {(one["name"], one["value"], one["note"]) for one in ruled["settings"]} >= {
        ("events_off", "active, progress", "the disk is full"),
        ("progress_interval", "5 s", "the disk is full"),
        ("event_content", "value", "the disk is full"),
    }
    none = await shell.json("settings", "q", "--events-off", "none")
    assert ("events_off", None) in {(one["name"], one["value"]) for one in none["settings"]}
    for option, wrong in (("--events-off", "activ"), ("--progress-interval", "soon"), ("--event-content", "x")):
        assert (await shell.run("settings", "q", option, wrong)).returncode == 2
    assert not await q.is_paused()
    assert (await shell.json("audit", "q", "--limit", "1"))["audit"][0]["action"] == "set events"
