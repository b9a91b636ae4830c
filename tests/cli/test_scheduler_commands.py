"""The command that lists job schedulers and changes one."""

from __future__ import annotations

from pathlib import Path

from tests.cli.shell import Shell
from tests.support.helpers import AnyQueue
from tests.support.servers import Server


async def test_job_schedulers_are_listed_and_changed(server: Server, jobs: AnyQueue, tmp_path: Path) -> None:
    shell, q = Shell(server.url, tmp_path / "t"), jobs
    await q.upsert_job_scheduler("nightly", cron="0 3 * * *", tz="Europe/Madrid", name="totals")
    [one] = (await shell.json("schedulers", "q"))["schedulers"]
    assert (one["id"], one["cron"], one["tz"], one["name"], one["fired"]) == (
        *("nightly", "0 3 * * *", "Europe/Madrid", "totals"),
        0,
    )
    triggered = await shell.json("schedulers", "q", "--trigger", "nightly")
    job = await q.get_job(triggered["job_id"])
    assert job is not None
    assert job.name == "totals"
    why = ("--reason", "a full disk")
    assert await shell.json("schedulers", "q", "--pause", "nightly", *why) == {"paused": "nightly"}
    [one] = (await shell.json("schedulers", "q"))["schedulers"]
    assert (one["paused"], one["origin"], one["note"]) == (True, "operator", "a full disk")
    [held] = [one for one in (await shell.json("settings", "q"))["settings"] if one["name"] == "schedule"]
    assert (held["key"], held["value"], held["who"]) == ("nightly", "paused", one["who"])
    assert "a full disk" in (await shell.run("schedulers", "q")).stdout
    assert (await shell.run("schedulers", "q", "--resume", "nightly")).stdout == "resumed nightly\n"
    refused = await shell.run("schedulers", "q", "--pause", "a", "--resume", "b")
    assert (refused.returncode, "it cannot be combined with --resume" in refused.stderr) == (2, True)
    assert (await shell.run("schedulers", "q", "--remove", "nightly")).stdout == "removed nightly\n"
    assert await q.get_job_schedulers() == []
