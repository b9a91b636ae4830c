"""Tables fit a terminal of 80 columns, and show only columns that say something."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import Queue, UnrecoverableError
from glidemq_async.cli import output
from glidemq_async.cli.tables import Column, duration, format_table
from tests.cli.commands import environment
from tests.cli.shell import Shell
from tests.support.helpers import AnyJob, AnyQueue, ended, worker_of
from tests.support.servers import Server
from tests.support.stores import RunningStore, endpoint_of

WIDE = "\N{CJK UNIFIED IDEOGRAPH-6F22}"
STEERING = "\x1b]0;owned\x07\x9b31m\x7f\u202e\u2028\r"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is a terminal of 80 columns without colours."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setattr(output, "in_terminal", lambda: True)


@pytest.fixture
def shell(server: Server, tmp_path: Path) -> Shell:
    shell = Shell(server.url, tmp_path / "t")
    shell.set("COLUMNS", "80")
    return shell


def test_columns_that_are_zero_everywhere_are_left_out() -> None:
    rows = [["a", 0, None, "", 0, 3], ["b", 0, None, "", 0, 0]]
    columns = ("name", "none", "nothing", "empty", Column("kept", kept=True), "some")
    assert format_table(columns, rows) == ["name  kept  some", "a        0     3", "b        0     0"]


@pytest.mark.parametrize("text", ["x" * 200, WIDE * 90, "a\u0301" * 150, STEERING * 20])
def test_long_texts_are_shortened_until_the_row_fits(text: str) -> None:
    rows = [["first" * 4, text, 1_234_567, text], ["b", "short", 1, "c"]]
    header, *lines = format_table(["id", "one", "two", "three"], rows, width=80)
    from rich.cells import cell_len

    assert len(header) <= 80
    assert max(map(cell_len, lines)) <= 80
    assert lines[0].startswith("first" * 4)
    assert "1234567" in lines[0]
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.2, "0s"), (59, "59s"), (119, "119s"), (120, "2m"), (7_200, "2h"), (400_000, "4d")]
)
def test_durations_have_one_unit(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


async def hostile(job: AnyJob) -> None:
    await job.log(STEERING)
    raise UnrecoverableError(f"the mailbox of this customer does not exist any more {STEERING}")


@pytest.mark.usefixtures("terminal")
async def test_every_table_fits_80_columns(shell: Shell, q: AnyQueue) -> None:
    async with Queue[Any, Any]("notifications-by-mail", q.storage) as other, worker_of(other, hostile, name="w" * 30):
        job = await ended(await other.add("send-the-newsletter", {"to": "ada@example.com " * 9}, key="k" * 50))
        for number in range(3):
            await q.add("resize", number, delay=3_600)
        await q.upsert_job_scheduler("nightly", cron="0 3 * * *", tz="America/Argentina/Buenos_Aires", name="totals")
        commands = [["queues"], ["jobs"], ["dlq"], ["workers"], ["schedulers"], ["find", "name:send*"]]
        for command in commands:
            done = await shell.run(*command)
            assert done.returncode == 0, done.stderr
            lines = done.stdout.splitlines()
            assert lines[1:], command
            assert [line for line in lines if len(line) > 80] == [], command
            assert [line for line in lines if not line.isprintable()] == [], command
        assert job.id in (await shell.run("dlq")).stdout


@pytest.mark.usefixtures("terminal")
async def test_states_without_room_become_one_column(shell: Shell, q: AnyQueue) -> None:
    await q.add("n")
    await q.add("n", priority=1)
    await q.add("n", delay=60)
    await q.add_bulk([("n", None)] * 3)
    assert (await shell.run("queues")).stdout.splitlines() == [
        "queue  waiting  delayed  prioritized  workers",
        "q            4        1            1        0",
    ]
    shell.set("COLUMNS", "36")
    narrow = await shell.run("queues")
    assert max(map(len, narrow.stdout.splitlines())) <= 36
    assert "other: prioritized" in narrow.stderr


async def test_the_total_is_shown_beside_a_cut_list(shell: Shell, q: AnyQueue) -> None:
    await q.add_bulk([("n", number) for number in range(30)])
    for command in (["jobs", "q"], ["jobs"], ["jobs", "state:waiting"], ["jobs", "q", "-s", "waiting"]):
        assert (await shell.run(*command)).stderr.startswith("20 of 30 jobs; "), command
    assert (await shell.run("jobs", "name:n")).stderr.startswith("the first 20 jobs; ")


async def test_lists_cover_every_queue(shell: Shell, q: AnyQueue) -> None:
    async with Queue[Any, Any]("other", q.storage) as other, worker_of(q, hostile):
        await ended(await q.add("n", job_id="a"))
        await other.add("n", job_id="b")
        for queue in (q, other):
            await queue.upsert_job_scheduler(f"of-{queue.name}", every=3_600)
        assert {(one["queue"], one["id"]) for one in (await shell.json("jobs"))["jobs"] if one["id"] in "ab"} == {
            ("q", "a"),
            ("other", "b"),
        }
        assert [one["id"] for one in (await shell.json("jobs", "state:failed"))["jobs"]] == ["a"]
        assert [one["id"] for one in (await shell.json("dlq"))["dead_letters"]] == ["a"]
        schedulers = (await shell.json("schedulers"))["schedulers"]
        assert [(one["queue"], one["id"]) for one in schedulers] == [("other", "of-other"), ("q", "of-q")]
    for refused in (["dlq", "--replay"], ["schedulers", "--remove", "of-q"]):
        assert (await shell.run(*refused)).returncode == 2


async def test_events_of_one_job(shell: Shell, q: AnyQueue) -> None:
    for job_id in ("a", "b"):
        await q.add("n", job_id=job_id)
    lines = (await shell.run("events", "q", "--no-follow", "--job", "b")).stdout.splitlines()
    assert [line.split()[1:3] for line in lines] == [["added", "b"]]


async def test_missing_events_are_counted(shell: Shell, server: Server, q: AnyQueue) -> None:
    await q.add_bulk([("n", number) for number in range(2)])
    first = json.loads((await shell.run("events", "q", "--no-follow", "--json")).stdout.splitlines()[0])["position"]
    store = RunningStore("cli", server.url, (endpoint_of(server),))
    for number, expected in enumerate(["1 event was trimmed before it was read", "2 events were trimmed before they"]):
        await q.add("n")
        await store.ask("XTRIM", "glide:{q}:events", "MAXLEN", 1)
        lines = (await shell.run("events", "q", "--no-follow", "--after", first)).stdout.splitlines()
        assert lines[0].strip().startswith(expected), number
        assert len(lines) == 2
    await q.obliterate(force=True)
    await q.add_bulk([("n", number) for number in range(3)])
    lines = (await shell.run("events", "q", "--no-follow", "--after", first)).stdout.splitlines()
    assert lines[0].strip() == "the queue was obliterated, and its unread events are lost"


async def test_trimmed_log_lines_are_counted(shell: Shell, q: AnyQueue) -> None:
    job = await q.add("n")
    for number in range(1_000):
        await job.log(str(number))
    for expected in ("1 line was trimmed", "2 lines were trimmed"):
        await job.log("one more")
        shown = (await shell.run("watch", "q", job.id, "--count", "1")).stdout.splitlines()
        assert shown[1] == f"  {expected}"


async def test_a_job_is_watched_until_it_ends(shell: Shell, q: AnyQueue) -> None:
    async with worker_of(q, hostile):
        job = await ended(await q.add("n"))
    done = await shell.run("watch", "q", job.id)
    assert done.returncode == 1
    assert done.stdout.splitlines()[0].endswith("  failed")
    assert "owned" in done.stdout
    assert done.stdout.replace("\n", "").isprintable()
    seen = await shell.run("watch", "q", "--count", "1", "--json")
    assert '"failed": 1' in seen.stdout
    assert (await shell.fails("watch", "q", "nope"))[0] == 4


PATIENT = "from glidemq_async.cli import completion, main; completion.SECONDS = 25.0; main()"
"""A command whose completion may take longer than a user would wait, because the machine may be busy."""


async def test_a_shell_completes_queue_names(q: AnyQueue, server: Server, tmp_path: Path) -> None:
    async with Queue[Any, Any]("quiet", q.storage), Queue[Any, Any]("mail", q.storage):
        asked = {"_GLIDEMQ_COMPLETE": "complete_bash", "COMP_WORDS": "glidemq jobs q", "COMP_CWORD": "2"}
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", PATIENT],
            capture_output=True,
            text=True,
            env=environment(tmp_path / "t") | asked | {"GLIDEMQ_URL": server.url, "PATH": os.environ["PATH"]},
            timeout=30,
            check=False,
        )
    assert done.stdout.split() == ["q", "quiet"]
