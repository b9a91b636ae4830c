"""The commands that read and change queues, as programs: their output for people and for programs, and their exit
codes.
"""

from __future__ import annotations

import asyncio
import datetime
import json
import math
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pytest

from glidemq_async import Queue, Signing, UnrecoverableError
from glidemq_async.cli import dead_letter_command, inspect_commands
from glidemq_async.storage.redis.wire import ReplyError
from glidemq_async.stored.dead_letter import FailureCause
from glidemq_async.stored.record import State
from tests.cli.commands import COMMAND, environment
from tests.cli.shell import Shell
from tests.support.helpers import AnyJob, AnyQueue, echo, ended, worker_of
from tests.support.servers import Server, eventually, standalone

NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with standalone("--appendonly", "yes", unix=True) as started:
        yield started


async def slow_death(job: AnyJob) -> Any:
    raise ValueError("too late")


async def handler(job: AnyJob) -> Any:
    await job.log("a line\x1b[31m")
    if job.name == "bad":
        raise UnrecoverableError("no such page")
    return job.data


async def test_jobs_are_added(server: Server, q: AnyQueue, tmp_path: Path) -> None:
    process, shell = Shell(server.url, tmp_path / "t", processes=True), Shell(server.url, tmp_path / "t")
    done = await process.run("add", "q", "mail", '{"to": "ada"}', "--key", "k", "--attempts", "3", "--header", "a=b=c")
    assert (done.returncode, done.stdout) == (0, "1\n")
    job = await q.get_job("1")
    assert job is not None
    assert (job.name, job.data, job.key, job.options.attempts) == ("mail", {"to": "ada"}, "k", 3)
    assert job.headers == {"a": "b=c"}
    assert await shell.json("add", "q", "mail", "--id", "own", "--delay", "60") == {
        "id": "own",
        "queue": "q",
        "outcome": "added",
    }
    assert (await shell.run("add", "q", "mail", "--id", "own")).stdout == "own (duplicate)\n"
    assert (await process.run("add", "q", "t", "-", given="[1, 2]")).returncode == 0
    assert (await shell.run("add", "q", "t", "--args", "[1]", "--kwargs", '{"x": 2}')).returncode == 0
    assert [job.data for job in await q.get_jobs("waiting")] == [[1, 2], {"a": [1], "k": {"x": 2}}]


async def test_standard_input_that_is_not_text_is_refused(server: Server, tmp_path: Path) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [*COMMAND, "add", "q", "n", "-"],
        input=b"\xff\xfe",
        capture_output=True,
        check=False,
        timeout=30,
        env=environment(tmp_path / "t") | {"GLIDEMQ_URL": server.url, "PYTHONUTF8": "1"},
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"is not valid text" in done.stderr
    assert b"Traceback" not in done.stderr


async def test_several_states_are_listed(shell: Shell, q: AnyQueue) -> None:
    for number in range(3):
        await q.add("n", number)
        await q.add("n", 10 + number, delay=60 + number)

    async def listed(*options: str) -> list[int]:
        return [job["data"] for job in (await shell.json("jobs", "q", *options))["jobs"]]

    several = ("--state", "delayed", "-s", "waiting")
    assert await listed(*several) == [10, 11, 12, 0, 1, 2]
    assert await listed(*several, "--newest-first") == [12, 11, 10, 2, 1, 0]
    assert await listed(*several, "--newest-first", "--offset", "2", "--limit", "2") == [10, 2]
    assert await listed(*several, "--oldest-first", "--name", "n", "--limit", "4") == [10, 11, 12, 0]


async def test_payloads_without_a_json_form_are_shown(shell: Shell, q: AnyQueue) -> None:
    for data in ({b"k": [math.nan]}, {datetime.date(2030, 1, 31): -math.inf}, {math.inf: {1: None}}, {b"\xff": True}):
        await q.add("n", data)
    done = await shell.run("jobs", "q", "--json")
    assert (done.returncode, done.stderr) == (0, "")

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    shown = [job["data"] for job in json.loads(done.stdout, parse_constant=refuse)["jobs"]]
    assert shown == [{"k": ["nan"]}, {"2030-01-31": "-inf"}, {"inf": {"1": None}}, {"\\xff": True}]
    assert (await shell.run("jobs", "q")).returncode == 0


@pytest.mark.parametrize("value", [0, False])
async def test_a_payload_of_zero_or_false_is_shown(shell: Shell, q: AnyQueue, value: object) -> None:
    job = await q.add("n", value)
    async with worker_of(q, echo):
        await ended(job)
    shown = [line.split() for line in (await shell.run("job", "q", job.id)).stdout.splitlines()]
    assert ["data", json.dumps(value)] in shown
    assert ["return", "value", json.dumps(value)] in shown


async def test_a_command_can_wait_for_the_result(shell: Shell, q: AnyQueue) -> None:
    async with worker_of(q, handler):
        assert (await shell.run("add", "q", "n", '{"x": [1]}', "--wait", "10")).stdout == '{"x": [1]}\n'
        assert await shell.fails("add", "q", "bad", "--wait", "10") == (
            1,
            "glidemq: UnrecoverableError: no such page",
        )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("add", "q", "n", "{"), "invalid JSON"),
        (("add", "q", "n", "[NaN]"), "invalid JSON: NaN"),
        (("add", "q", "n", "[" * 5_000 + "]" * 5_000), "invalid JSON: it is nested too deeply"),
        (("add", "q", "n", "1", "--args", "[]"), "but not DATA"),
        (("add", "q", "n", "--args", "{}"), "must be a JSON list"),
        (("add", "q", "n", "--header", "a"), "is not NAME=TEXT"),
        (("add", "q", "n", "--at", "tomorrow"), "2030-01-31T12:00:00+01:00"),
        (("add", "q", "n", "--at", "2030-01-31"), "'2030-01-31' has no time zone"),
        (("retry", "q"), "name jobs, or use --all, --count or --filter"),
        (
            ("limits", "q", "--concurrency", "abc"),
            "value for --concurrency: it is 'abc'; write --concurrency 20",
        ),
        (("limits", "q", "--rate", "100"), "Invalid value for --rate: it is '100'; write --rate 100/60"),
        (("limits", "q", "--rate", "0/60"), "Invalid value for --rate: max must be"),
        (("limits", "q", "--key", "k", "--bucket", "x"), "Invalid value for --bucket: it is 'x'; write --bucket 10/2"),
        (("jobs", "q", "--offset", "3"), "it can only be used with QUEUE and --state"),
        (("jobs", "q", "--state", "gone"), "'gone' is not one of 'waiting', 'active', 'delayed'"),
        (("dlq", "q", "--cause", "gone"), "'gone' is not one of 'retries_exhausted', 'unrecoverable'"),
        (("events", "q", "--kind", "gone"), "'gone' is not one of added, delayed"),
        (("schedulers", "q", "--trigger", "a", "--remove", "b"), "it cannot be combined with --remove"),
    ],
)
async def test_meaningless_options_are_refused_before_anything_is_sent(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    code, said = await Shell(NOWHERE, tmp_path / "t").fails(*arguments)
    assert code == 2
    assert says in " ".join(said.replace("│", " ").split())


async def test_an_unreachable_server_is_one_line_with_advice(tmp_path: Path) -> None:
    code, said = await Shell(NOWHERE, tmp_path / "t").fails("jobs", "q")
    assert code == 3
    assert said.startswith(f"glidemq: cannot reach {NOWHERE}: ")
    assert said.rstrip().endswith("Start the server, or correct the URL or $GLIDEMQ_URL.")
    assert said.count("\n") <= 1


async def test_values_that_the_library_refuses_are_usage_errors(shell: Shell, q: AnyQueue) -> None:
    assert await shell.fails("add", "q", "n", "--lifo", "--key", "k") == (
        2,
        "glidemq: lifo and key='k' cannot be combined; use one of them",
    )
    assert (await shell.fails("add", "a:b", "n"))[0] == 2
    assert (await shell.fails("queues", "--url", "http://x"))[0] == 2


async def test_queues_and_workers_are_listed(shell: Shell, q: AnyQueue, server: Server) -> None:
    await q.add_bulk([("n", 1), ("n", 2)])
    async with Queue[Any, Any]("other", server.url) as other, worker_of(other, echo, name="w") as worker:
        await other.pause()
        found = await shell.json("queues")
        assert [one["name"] for one in found["queues"]] == ["other", "q"]
        first, second = found["queues"]
        assert (first["paused"], first["workers"], second["paused"], second["workers"]) == (True, 1, False, 0)
        assert second["counts"] == await q.get_job_counts()
        [row] = (await shell.json("workers"))["workers"]
        assert (row["queue"], row["name"], row["pid"], row["running"]) == ("other", worker.name, os.getpid(), 0)
        assert (await shell.json("workers", "q"))["workers"] == []
        table = (await shell.run("queues")).stdout.splitlines()
        assert table[0].split()[:3] == ["queue", "waiting", "workers"]
        assert table[1].split()[:3] == ["other", "paused", "0"]
        assert table[2].split()[:3] == ["q", "2", "0"]


async def test_jobs_are_listed_and_one_is_shown(shell: Shell, q: AnyQueue) -> None:
    async with worker_of(q, handler):
        bad = await ended(await q.add("bad", {"n": 1}))
        good = await ended(await q.add("good", {"n": 2, "b": b"\xff"}))
    waiting = await q.add("late", key="k")
    found = (await shell.json("jobs", "q"))["jobs"]
    assert {one["id"]: one["state"] for one in found} == {
        waiting.id: "key-waiting",
        good.id: "completed",
        bad.id: "failed",
    }
    [one] = (await shell.json("jobs", "q", "--state", "failed"))["jobs"]
    assert (one["failed_reason"], one["failure_cause"]) == ("UnrecoverableError: no such page", "unrecoverable")
    assert [one["id"] for one in (await shell.json("jobs", "q", "--data", '{"n": 2}'))["jobs"]] == [good.id]
    whole = await shell.json("job", "q", good.id)
    assert whole["data"] == {"n": 2, "b": {"base64": "/w=="}}
    assert (whole["logs"], whole["unreadable"], whole["stacktrace"]) == (["a line\x1b[31m"], {}, None)
    assert set(whole) == set(one) | {"logs"}
    printed_text = (await shell.run("job", "q", bad.id)).stdout
    assert "no such page" in printed_text
    # The data of a job must never control the terminal of a user.
    assert "\x1b" not in printed_text
    assert "Traceback" in printed_text


async def test_unreadable_payloads_are_not_shown_as_empty(shell: Shell, server: Server) -> None:
    codecs = [Signing({"k": b"k" * 32})]
    sealed = Queue[Any, Any]("sealed", server.url, codecs=codecs)
    async with sealed, worker_of(sealed, handler, codecs=codecs):
        await ended(await sealed.add("bad", {"n": 1}))
    for command in ("jobs", "dlq"):
        done = await shell.run(command, "sealed")
        assert "(sealed)" in done.stdout
        assert "--app module:name" in done.stderr
    assert (await shell.json("jobs", "sealed"))["jobs"][0]["sealed"] == ["data"]


async def test_a_program_reads_complete_rows(shell: Shell, q: AnyQueue) -> None:
    job = await q.add("n" * 300, "x" * 300, job_id="i" * 300)
    heading, row = (await shell.run("jobs", "q")).stdout.splitlines()
    assert row.split()[0] == job.id
    assert row.endswith("…")
    assert [heading.index("name"), heading.index("data")] == [row.index("n"), row.index("x")]


async def test_a_full_disk_is_reported_in_one_line(q: AnyQueue, server: Server, tmp_path: Path) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        f"{' '.join(COMMAND)} jobs q > /dev/full",
        shell=True,
        capture_output=True,
        text=True,
        env=environment(tmp_path / "t") | {"GLIDEMQ_URL": server.url},
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "glidemq: [Errno 28] No space left on device\n")


async def test_a_command_waits_for_a_server_that_loads_its_data(tmp_path: Path) -> None:
    slow = ("--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024")
    async with standalone(*slow, unix=True) as server:
        shell = Shell(server.url, tmp_path / "t")
        await shell.json("add", "q", "n")
        await server.command("DEBUG", "POPULATE", 1_000, "filler", 10)
        await server.command("SAVE")
        await asyncio.to_thread(server.stop)
        started = asyncio.ensure_future(server.start())
        await eventually(lambda: _loads(server), "the server must be loading its data")
        assert [one["name"] for one in (await shell.json("queues"))["queues"]] == ["q"]
        await started


async def _loads(server: Server) -> bool:
    try:
        await server.command("GET", "x")
    except ReplyError as error:
        return str(error).startswith("LOADING")
    return False


async def test_missing_jobs_and_queues_are_reported(shell: Shell, q: AnyQueue) -> None:
    code, said = await shell.fails("job", "q", "77")
    assert (code, said.startswith("glidemq: queue 'q' has no job '77'")) == (4, True)
    code, said = await shell.fails("jobs", "qq")
    assert (code, said.endswith("did you mean 'q'?")) == (4, True)
    assert (await shell.fails("schedulers", "q", "--trigger", "no"))[0] == 4
    # Reading a missing queue must not create it.
    assert [one["name"] for one in (await shell.json("queues"))["queues"]] == ["q"]


def test_the_choices_of_the_commands_match_the_library() -> None:
    assert tuple(inspect_commands.StateName) == get_args(State)
    assert get_args(dead_letter_command.Cause) == get_args(FailureCause)


async def test_reading_creates_no_store(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    typo, taken = tmp_path / "typo" / "path", tmp_path / "mine"
    for command in (("queues",), ("jobs", "q"), ("workers",), ("pause", "q"), ("events", "q"), ("functions",)):
        shell = Shell(typo.as_uri(), tmp_path / "t")
        code, said = await shell.fails(*command)
        assert code == 4
        assert said == (
            f"glidemq: there are no queues at {typo.as_uri()}, and this command creates none: "
            f"{tmp_path} contains no 'typo'"
        )
        code, said = await shell.fails(*command, "--url", taken.as_uri())
        assert (code, said.endswith(f"the directory {taken} contains no queues")) == (4, True)
    doctor = await Shell(typo.as_uri(), tmp_path / "t").run("doctor", "--json")
    server = next(one for one in json.loads(doctor.stdout)["checks"] if one["name"] == "server")
    assert (doctor.returncode, server["status"]) == (0, "warn")
    assert not typo.parent.exists()
    assert list(taken.iterdir()) == []


async def test_a_file_store_can_be_used(tmp_path: Path) -> None:
    shell = Shell(f"{(tmp_path / 'made').as_uri()}?linger=0.2", tmp_path / "t")
    assert (await shell.json("add", "q", "n", "1"))["outcome"] == "added"
    assert [one["data"] for one in (await shell.json("jobs", "q"))["jobs"]] == [1]


async def test_an_unreachable_server_is_reported(tmp_path: Path) -> None:
    shell = Shell(f"unix://{tmp_path}/nobody", tmp_path / "t")
    code, said = await shell.fails("queues")
    assert (code, said.count("\n")) == (3, 0)
    done = await shell.run("doctor", "--json")
    assert done.returncode == 3
    assert json.loads(done.stdout)["status"] == "fail"


async def test_retrying_pausing_and_replaying_dead_letters(shell: Shell, q: AnyQueue) -> None:
    async with worker_of(q, handler):
        failed = [await ended(job) for job in await q.add_bulk([("bad", 1), ("bad", 2), ("bad", 3)])]
    assert await shell.json("pause", "q") == {"queue": "q", "paused": True}
    assert await q.is_paused()
    assert (await shell.run("resume", "q")).stdout == "q is running\n"
    assert not await q.is_paused()
    dead_letters = (await shell.json("dlq", "q", "--cause", "unrecoverable"))["dead_letters"]
    assert [one["id"] for one in dead_letters] == [job.id for job in reversed(failed)]
    assert (await shell.json("retry", "q", failed[0].id))["retried"] == 1
    code, said = await shell.fails("retry", "q", failed[0].id)
    assert (code, "is waiting, not failed" in said) == (5, True)
    replayed = await shell.run("dlq", "q", "--replay", "--limit", "1")
    assert replayed.stdout == "replayed 1, 1 are left\n"
    assert await shell.json("retry", "q", "--all") == {"queue": "q", "retried": 1}
    assert (await q.get_job_counts())["waiting"] == 3


@pytest.mark.parametrize("wait", [False, True])
async def test_no_control_character_reaches_the_terminal(shell: Shell, q: AnyQueue, wait: bool) -> None:
    steering = "\x1b]0;owned\x07\x9b31m\x7f\u202e\u2028\xe9"

    async def hostile(job: AnyJob) -> str:
        if job.name == "bad":
            raise ValueError(steering)
        return steering

    async with worker_of(q, hostile):
        printed: list[str] = []
        for name in ("good", "bad"):
            if wait:
                shown = await shell.run("add", "q", name, json.dumps(steering), "--wait", "10")
                printed += [shown.stdout, shown.stderr]
            else:
                job = await ended(await q.add(name, steering))
                for command in (["job", "q", job.id], ["jobs", "q"], ["events", "q", "--no-follow"]):
                    for form in ([], ["--json"]):
                        shown = await shell.run(*command, *form)
                        assert shown.returncode == 0, shown.stderr
                        printed += [shown.stdout, shown.stderr]
                assert (await shell.json("job", "q", job.id))["data"] == steering
    text = "".join(printed)
    assert "owned" in text
    assert "\xe9" in text
    assert [c for c in text if not c.isprintable() and c != "\n"] == []


async def test_a_truncated_list_is_marked(shell: Shell, q: AnyQueue) -> None:
    async with worker_of(q, handler):
        [await ended(job) for job in await q.add_bulk([("bad", 1), ("bad", 2), ("bad", 3)])]
    for command, field in (("jobs", "jobs"), ("dlq", "dead_letters")):
        for limit, more in (("2", True), ("3", False)):
            found = await shell.json(command, "q", "--limit", limit)
            assert (len(found[field]), found["more"]) == (int(limit), more)
            done = await shell.run(command, "q", "--limit", limit)
            assert (len(done.stdout.splitlines()), bool(done.stderr)) == (int(limit) + 1, more)
            assert done.stderr.startswith("2 of 3 " if more else "")


async def test_jobs_are_removed_revoked_and_promoted(shell: Shell, q: AnyQueue) -> None:
    first, second, third = [job.id for job in await q.add_bulk([("n", 1), ("n", 2), ("n", 3)])]
    late = await q.add("late", delay=3600)
    assert (await shell.run("promote", "q", late.id)).stdout == "promoted 1\n"
    assert await late.get_state() == "waiting"
    assert await shell.json("revoke", "q", first) == {"queue": "q", "revoked": 1, "stopping": 0}
    assert await shell.json("remove", "q", second, third) == {"queue": "q", "removed": 2}
    assert {job.id: job.state for job in await q.search_jobs()} == {first: "failed", late.id: "waiting"}
    assert await shell.fails("remove", "q", late.id, "nope") == (
        4,
        "glidemq: there is no job 'nope' in queue 'q'; none was removed",
    )
    assert await late.get_state() == "waiting"
    code, said = await shell.fails("promote", "q", first)
    assert (code, "the job is failed" in said) == (5, True)


async def test_an_active_job_is_revoked(shell: Shell, q: AnyQueue) -> None:
    started = asyncio.Event()

    async def hang(job: AnyJob) -> None:
        started.set()
        await asyncio.Event().wait()

    async with worker_of(q, hang):
        job = await q.add("n")
        await started.wait()
        assert (await shell.run("revoke", "q", job.id, "--reason", "no longer")).stdout == "revoked 0, stopping 1\n"
        assert (await ended(job)).failed_reason == "revoked: no longer"


async def test_a_dead_letter_queue_shows_the_causes(shell: Shell, q: AnyQueue, server: Server) -> None:
    async with worker_of(q, handler, dead_letter_queue="dead"):
        job = await ended(await q.add("bad", {"n": 1}))

        async def moved() -> bool:
            async with Queue[Any, Any]("dead", server.url) as dead:
                return len(await dead.get_dead_letter_jobs()) == 1

        await eventually(moved, "the dead letter must be moved")
    [dead_letter] = (await shell.json("dlq", "dead"))["dead_letters"]
    assert (dead_letter["failure_cause"], dead_letter["attempts_made"]) == (None, 0)  # it has not run there
    assert dead_letter["dead_letter_of"].pop("failed_at") is not None
    assert dead_letter["dead_letter_of"] == {
        "queue": "q",
        "id": job.id,
        "cause": "unrecoverable",
        "reason": "UnrecoverableError: no such page",
        "attempts_made": 1,
    }
    row = (await shell.run("dlq", "dead")).stdout.splitlines()[1]
    for printed_text in (
        f"(of q {job.id})",
        "  unrecoverable  ",
        "  1  ",
        "UnrecoverableError: no such page",
    ):
        assert printed_text in row
    async with Queue[Any, Any]("dead", server.url) as dead, worker_of(dead, slow_death):
        await ended((await dead.get_dead_letter_jobs())[0])
    # A job that failed again there has the new cause.
    assert "ValueError: too late" in (await shell.run("dlq", "dead")).stdout


async def test_past_events_are_listed(shell: Shell, q: AnyQueue) -> None:
    assert (await shell.run("events", "q", "--no-follow")).stdout == ""
    await q.add("n")
    await q.pause()
    lines = (await shell.run("events", "q", "--no-follow", "--json")).stdout.splitlines()
    first, second = map(json.loads, lines)
    assert (first["kind"], first["job_id"], first["detail"], second["kind"]) == ("added", "1", "n", "paused")
    after = await shell.run("events", "q", "--no-follow", "--after", first["position"])
    assert after.stdout.split()[1:] == ["paused"]


async def test_new_events_are_followed(q: AnyQueue, server: Server, tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *("events", "q", "--json", "--after", "0"),
        env=environment(tmp_path / "t") | {"GLIDEMQ_URL": server.url, "PYTHONUNBUFFERED": "1"},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        for number in range(3):
            await q.add(f"n{number}")
            assert json.loads(await asyncio.wait_for(process.stdout.readline(), 20))["detail"] == f"n{number}"
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 20) == 130
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        await process.stdout.read()


async def test_the_doctor_finds_nothing_on_a_sound_server(shell: Shell, q: AnyQueue) -> None:
    await q.add("n")
    found = await shell.json("doctor", "--deep")
    assert found["status"] in {"ok", "warn"}
    assert {check["status"] for check in found["checks"] if not check["name"].startswith("sandbox")} == {"ok"}
    names = [check["name"].rpartition(": ")[2] for check in found["checks"]]
    expected = ["python", "package", "libraries", "embedded server", "server", "version", "role", "maxmemory-policy"]
    expected += ["memory", "persistence", "functions", "clock", "latency", "queue q"]
    assert [name for name in names if name in expected] == expected


async def test_the_doctor_finds_settings_that_lose_jobs(shell: Shell, q: AnyQueue, server: Server) -> None:
    await q.add("n")
    await server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    await server.command("CONFIG", "SET", "appendonly", "no")
    await server.command("CONFIG", "SET", "save", "")
    await server.command("DEL", "glide:{q}:job:1")
    await server.command("SET", "glide:{q}:stranger", 1)
    await server.command("FUNCTION", "FLUSH")
    done = await shell.run("doctor", "--json")
    assert done.returncode == 0
    found = {check["name"].rpartition(": ")[2]: check for check in json.loads(done.stdout)["checks"]}
    assert (found["maxmemory-policy"]["status"], found["persistence"]["status"]) == ("warn", "warn")
    assert "without effect" in found["maxmemory-policy"]["detail"]
    assert "not loaded yet" in found["functions"]["detail"]
    assert await server.command("FUNCTION", "LIST") == []
    await server.command("CONFIG", "SET", "maxmemory", "100mb")
    done = await shell.run("doctor", "--deep")
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert "FAIL" in said
    assert "set it to noeviction" in said
    assert "glide:{q}:stranger" in said


async def test_the_doctor_distinguishes_a_wrong_password_from_a_wrong_address(tmp_path: Path) -> None:
    async with standalone() as server:
        await server.command("CONFIG", "SET", "requirepass", "right")
        shell = Shell(f"redis://:wrong@127.0.0.1:{server.port}", tmp_path / "t")
        done = await shell.run("doctor", "--json")
        assert done.returncode == 3
        [found] = [check for check in json.loads(done.stdout)["checks"] if check["name"] == "server"]
        assert "refused the login" in found["detail"]
        assert found["advice"].startswith("correct the user and the password")
        shell = Shell(f"redis://:right@127.0.0.1:{server.port}", tmp_path / "t")
        [found] = [check for check in (await shell.json("doctor"))["checks"] if check["name"].endswith("latency")]
        assert found["detail"].endswith(" ms the slowest of 20 pings")


async def test_the_functions_command_reads_without_loading(shell: Shell, server: Server) -> None:
    found = await shell.json("functions")
    assert (found["loaded"], found["shipped"]["library"]) == ([], "glidemq_async_v2")
    assert await server.command("FUNCTION", "LIST") == []
    [loaded] = (await shell.json("functions", "--load"))["loaded"]
    assert loaded | found["shipped"] == loaded
    assert (loaded["server"], loaded["functions"] > 30) == (server.path, True)


def test_completion_can_be_installed(tmp_path: Path) -> None:
    home = environment(tmp_path / "t") | {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    command = [*COMMAND, "--install-completion", "bash"]
    done = subprocess.run(command, capture_output=True, text=True, env=home, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    source = (tmp_path / ".bashrc").read_text()
    [script] = [path for path in tmp_path.rglob("*.sh") if str(path) in source]
    assert "_GLIDEMQ_COMPLETE" in script.read_text()


async def test_completion_knows_commands_queues_and_states(q: AnyQueue, server: Server, tmp_path: Path) -> None:
    async def complete(words: str) -> list[str]:
        asked = {"_GLIDEMQ_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()))}
        asked["GLIDEMQ_URL"] = server.url
        done = await asyncio.to_thread(
            subprocess.run,
            COMMAND,
            capture_output=True,
            text=True,
            env=environment(tmp_path / "t") | asked,
            timeout=30,
            check=False,
        )
        return done.stdout.split()

    assert {"worker", "doctor", "queues", "dlq"} <= set(await complete("glidemq "))
    assert "delayed" in await complete("glidemq jobs q --state ")
    await q.add("n")
    assert q.name in await complete("glidemq jobs ")


async def test_a_closed_pipe_is_not_an_error(q: AnyQueue, server: Server, tmp_path: Path) -> None:
    await q.add_bulk([("n" * 400, None)] * 2000)
    command = f"{' '.join(COMMAND)} events q --no-follow | head -1"
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        shell=True,
        capture_output=True,
        text=True,
        env=environment(tmp_path / "t") | {"GLIDEMQ_URL": server.url},
        timeout=30,
        check=False,
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
