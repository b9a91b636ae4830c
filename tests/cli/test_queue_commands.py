"""The commands that change queues: pauses, limits, drain, obliterate; and the audit lines of all changes."""

from __future__ import annotations

import getpass
import socket

from glidemq_async import Deduplication, Queue
from tests.cli.shell import Shell
from tests.support.helpers import AnyQueue, counts


async def test_a_key_is_paused_and_resumed(shell: Shell, q: AnyQueue) -> None:
    done = await shell.run("pause", "q", "--key", "ada", "--seconds", "600")
    assert done.stdout == "key ada of q is paused\n"
    assert (await q.get_key_limits("ada")).paused_until is not None
    assert "paused_until" in (await shell.json("limits", "q", "--key", "ada"))["limits"][1]
    assert await shell.json("resume", "q", "--key", "ada") == {"queue": "q", "key": "ada", "paused": False}
    assert (await q.get_key_limits("ada")).paused_until is None
    assert (await shell.run("pause", "q", "--key", "ada")).returncode == 2


async def test_limits_are_set_shown_and_removed(shell: Shell, q: AnyQueue) -> None:
    await shell.json("limits", "q", "--concurrency", "20", "--rate", "100/60")
    await shell.json("limits", "q", "--every-key", "--concurrency", "2")
    [shown, of_key] = (
        await shell.json("limits", "q", "--key", "ada", "--bucket", "50/10", "--reason", "a large import")
    )["limits"]
    assert (shown["concurrency"], shown["rate_limit"]) == (20, {"max": 100, "duration": 60})
    assert shown["every_key"]["concurrency"] == 2
    assert of_key["token_bucket"] == {"capacity": 50, "refill_rate": 10}
    assert [line.split() for line in (await shell.run("limits")).stdout.splitlines()] == [
        ["queue", "key", "concurrency", "rate"],
        ["q", "20", "100/60", "s"],
        ["q", "(every", "key)", "2"],
    ]
    await shell.json("limits", "q", "--concurrency", "none", "--rate", "none")
    assert (await shell.json("limits", "q", "--max-waiting", "9"))["limits"][0]["max_waiting"] == 9
    assert (await shell.run("limits", "q", "--key", "ada", "--max-waiting", "9")).returncode == 2
    await shell.json("limits", "q", "--max-waiting", "none")
    assert (await q.get_global_concurrency(), await q.get_global_rate_limit()) == (None, None)
    for wrong in (["--rate", "x"], ["--concurrency", "0"], ["--bucket", "1/1"], ["--key", "a", "--every-key"]):
        assert (await shell.run("limits", "q", *wrong)).returncode == 2, wrong
    assert (await shell.run("limits", "--concurrency", "2")).returncode == 2


async def test_a_retention_is_held_shown_and_released(shell: Shell, q: AnyQueue) -> None:
    assert (await shell.run("retention", "q")).stdout == "no retention is held; each job applies its own options\n"
    keep = ("--completed", "100/7d", "--failed", "all", "--max-events", "1000", "--reason", "a full disk")
    held = (await shell.json("retention", "q", *keep))["settings"]
    assert {one["name"]: (one["value"], one["origin"], one["note"]) for one in held} == {
        "keep_completed": ("100 jobs, 604800 s", "operator", "a full disk"),
        "keep_failed": ("all jobs", "operator", "a full disk"),
        "max_events": ("1000", "operator", "a full disk"),
    }
    await shell.json("settings", "q", "--release", "keep_failed")
    assert [one["name"] for one in (await shell.json("retention", "q", "--completed", "2h"))["settings"]] == [
        *("keep_completed", "max_events")
    ]
    for wrong in (["--completed", "x"], ["--failed", "1/2"], ["--max-events", "0"]):
        assert (await shell.run("retention", "q", *wrong)).returncode == 2, wrong


async def test_a_queue_is_drained(shell: Shell, q: AnyQueue) -> None:
    await q.add_bulk([("n", number) for number in range(3)])
    await q.add("n", delay=60)
    assert (await shell.run("drain", "q", "--dry-run", "--delayed")).stdout == "would remove 4\n"
    assert (await shell.run("drain", "q")).stdout == "removed 3\n"
    assert await counts(q) == {"delayed": 1}
    assert await shell.json("drain", "q", "--delayed") == {"queue": "q", "removed": 1}


async def test_a_queue_is_obliterated_with_the_ticket_of_its_preview(shell: Shell, q: AnyQueue) -> None:
    await q.add_bulk([("n", number) for number in range(3)])
    shown = (await shell.run("obliterate", "q")).stdout.splitlines()
    assert shown[0] == "queue q has 3 jobs: 3 waiting"
    ticket = shown[1].split()[-1]
    await q.add("n")
    code, said = await shell.fails("obliterate", "q", "--ticket", "3-guessed")
    assert (code, "is not a ticket of queue 'q'" in said) == (5, True)
    assert await counts(q) == {"waiting": 4}
    assert (await shell.run("obliterate", "q", "--ticket", ticket)).stdout == "removed queue q with 4 jobs\n"
    assert (await shell.run("queues")).stdout == "no queues\n"


async def test_every_change_writes_one_audit_line(shell: Shell, q: AnyQueue) -> None:
    await q.add("n", job_id="a", delay=60, deduplication=Deduplication("d"))
    await q.add("n", job_id="b")
    await q.upsert_job_scheduler("nightly", cron="0 3 * * *", name="totals")
    why = ("--reason", "a full disk")
    changes = (
        ("pause", "q"),
        ("resume", "q"),
        ("limits", "q", "--concurrency", "3"),
        ("release", "q", "d"),
        ("promote", "q", "a"),
        ("signal", "q", "a", "go"),
        ("revoke", "q", "a"),
        ("retry", "q", "a"),
        ("remove", "q", "b"),
        ("schedulers", "q", "--pause", "nightly"),
        ("dlq", "q", "--replay"),
        ("clean", "q", "--state", "failed"),
        ("drain", "q"),
    )
    for change in changes:
        done = await shell.run(*change, *why)
        assert done.returncode == 0, done.stderr
    lines = (await shell.json("audit", "q"))["audit"]
    assert [line["action"] for line in reversed(lines)] == [
        *("pause", "resume", "set limits", "release_deduplication", "promote", "signal", "revoke", "retry"),
        *("delete", "pause schedule", "replay", "clean", "drain"),
    ]
    assert {(line["source"], line["actor"], line["reason"], line["result"]) for line in lines} == {
        ("cli", f"{getpass.getuser()}@{socket.gethostname()}", "a full disk", "ok")
    }
    await shell.json("pause", "q", "--reason", "steering \\x1b[31m")
    shown = await shell.run("audit")
    assert "steering" in shown.stdout
    assert shown.stdout.replace("\n", "").isprintable()
    await q.add("n", job_id="c")
    assert (await shell.run("promote", "q", "c")).returncode == 5
    async with Queue("other", q.storage):
        assert (await shell.run("audit", "other")).stdout == "no changes\n"
    assert (await shell.json("audit", "--limit", "1"))["audit"][0]["result"] != "ok"
