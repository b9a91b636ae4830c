"""`glidemq worker` as a program: signals, the ends of its processes, and exit codes."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import termios
from pathlib import Path
from typing import Any

import pytest

from glidemq_async.cli.worker import supervisor
from glidemq_async.cli.worker.settings import WorkerSettings
from tests.cli.running import APP, SUPERVISED, gone, start, worker
from tests.support.helpers import AnyQueue, soon, until
from tests.support.servers import Server, eventually


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """A directory with an app in which no job may end yet."""
    (tmp_path / "jobs.py").write_text(APP)
    return tmp_path


async def handling(app: Path) -> None:
    """Wait until the handler runs a job. A job is active before that, from the moment at which the server claims it."""

    def runs() -> bool:
        return any(app.glob("*.awaited"))

    async with asyncio.timeout(20):
        while not runs():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_the_first_sigterm_lets_active_jobs_end(jobs: AnyQueue, server: Server, app: Path) -> None:
    async def nobody_idle() -> bool:
        return await server.command("ZCARD", "glide:{q}:idle") == 0

    async with worker(cwd=app, url=server.url) as running:
        job = await jobs.add("n", str(app / "go"))
        await handling(app)
        running.send(signal.SIGTERM)
        await running.event("stopping")
        await eventually(nobody_idle, "the worker must no longer be registered as idle")
        late = await jobs.add("n")
        (app / "go").touch()
        assert await running.code() == 0
        assert await job.result(5) == [1, running.pid]
        assert await late.get_state() == "waiting"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("module", ["typer", "jobs"], ids=["command", "app"])
async def test_a_worker_that_is_stopped_while_it_imports_ends_with_0(
    server: Server, tmp_path: Path, module: str, number: signal.Signals
) -> None:
    # A module of this name in the current directory hides the installed one.
    (tmp_path / f"{module}.py").write_text(f"import os\nos.kill(os.getpid(), {int(number)})\nraise SystemExit(99)")
    async with worker(cwd=tmp_path, url=server.url) as running:
        assert await running.code() == 0
        assert not running.lines
        assert not running.noise


async def test_an_ignored_sigint_is_ignored_while_a_worker_imports(server: Server, tmp_path: Path) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    (tmp_path / "jobs.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nraise SystemExit(99)")
    async with worker(cwd=tmp_path, url=server.url, before=ignore) as running:
        assert await running.code() == 99


@pytest.mark.parametrize("options", [(), SUPERVISED], ids=["alone", "supervised"])
async def test_a_second_sigterm_releases_them_immediately(
    jobs: AnyQueue, server: Server, app: Path, options: tuple[str, ...]
) -> None:
    async with worker(*options, cwd=app, url=server.url) as running:
        job = await jobs.add("n", str(app / "never"))
        await handling(app)
        running.send(signal.SIGTERM)
        await running.event("stopping")
        running.send(signal.SIGINT)
        assert await running.code() == 6
        assert await job.get_state() == "waiting"
        assert (job.attempts_made, job.stalled_count) == (0, 0)


async def test_two_signals_that_arrive_together_count_twice(jobs: AnyQueue, server: Server, app: Path) -> None:
    async with worker("--processes", "1", cwd=app, url=server.url) as running:
        pid = (await running.event("ready"))["worker_pid"]
        job = await jobs.add("n", str(app / "never"))
        await handling(app)
        os.kill(pid, signal.SIGSTOP)
        for _ in range(2):
            running.send(signal.SIGTERM)
            await running.event("stopping")
        os.kill(pid, signal.SIGCONT)
        assert await running.code() == 6
        assert await job.get_state() == "waiting"


async def test_a_killed_process_is_started_again(jobs: AnyQueue, server: Server, app: Path) -> None:
    async with worker(*SUPERVISED, cwd=app, url=server.url) as running:
        first, second = [await running.event("ready") for _ in range(2)]
        os.kill(first["worker_pid"], signal.SIGKILL)
        exited = await running.event("exited")
        assert (exited["worker"], exited["exit_code"]) == (first["worker"], -signal.SIGKILL)
        third = await running.event("ready")
        assert third["worker"] == first["worker"]
        assert len({first["worker_pid"], second["worker_pid"], third["worker_pid"]}) == 3
        assert (await jobs.add_and_wait("n", wait_timeout=10))[1] in {second["worker_pid"], third["worker_pid"]}
        running.send(signal.SIGTERM)
        assert await running.code() == 0


async def test_sighup_replaces_every_process_without_a_gap(jobs: AnyQueue, server: Server, app: Path) -> None:
    async with worker(*SUPERVISED, cwd=app, url=server.url) as running:
        before = {(await running.event("ready"))["worker_pid"] for _ in range(2)}
        job = await jobs.add("n", str(app / "go"))
        await handling(app)
        (app / "jobs.py").write_text(APP.replace("VERSION = 1", "VERSION = 2"))
        running.send(signal.SIGHUP)
        after = {(await running.event("ready"))["worker_pid"] for _ in range(2)}
        assert not before & after
        # One of the old processes had no job. The other one still runs its job.
        await running.count("exited", 1)
        (app / "go").touch()
        assert await job.result(10) in [[1, pid] for pid in before]
        await running.count("exited", 2)
        assert await jobs.add_and_wait("n", wait_timeout=10) in [[2, pid] for pid in after]
        running.send(signal.SIGTERM)
        assert await running.code() == 0


async def test_a_process_replaced_after_sighup_counts_one_sigterm(jobs: AnyQueue, server: Server, app: Path) -> None:
    async with worker("--processes", "1", cwd=app, url=server.url) as running:
        old = (await running.event("ready"))["worker_pid"]
        job = await jobs.add("n", str(app / "go"))
        await handling(app)
        running.send(signal.SIGHUP)
        await running.event("ready")
        running.send(signal.SIGTERM)
        new = await running.event("exited")  # it had no job
        assert new["worker_pid"] != old
        (app / "go").touch()
        assert await job.result(10) == [1, old]
        assert await running.code() == 0


async def test_sighup_keeps_the_old_processes_when_the_new_ones_cannot_start(
    jobs: AnyQueue, server: Server, app: Path
) -> None:
    async with worker("--processes", "1", cwd=app, url=server.url) as running:
        pid = (await running.event("ready"))["worker_pid"]
        (app / "jobs.py").write_text("def broken(:")
        running.send(signal.SIGHUP)
        assert (await running.event("kept"))["worker_pid"] == pid
        assert await jobs.add_and_wait("n", wait_timeout=10) == [1, pid]
        running.send(signal.SIGTERM)
        assert await running.code() == 0


async def test_a_single_process_logs_its_signals(jobs: AnyQueue, server: Server, app: Path) -> None:
    async with worker(cwd=app, url=server.url) as running:
        await jobs.add("n", str(app / "go"))
        await handling(app)
        running.send(signal.SIGHUP)
        assert (await running.event("restarting"))["message"].endswith("then restarting this process")
        # A process that was asked to end does not restart.
        running.send(signal.SIGTERM)
        await running.event("stopping")
        (app / "go").touch()
        assert await running.code() == 0
        assert sum("works on queue" in line["message"] for line in running.lines) == 1


async def test_sighup_restarts_a_single_process(jobs: AnyQueue, server: Server, app: Path) -> None:
    async with worker(cwd=app, url=server.url) as running:
        await running.working()
        (app / "jobs.py").write_text(APP.replace("VERSION = 1", "VERSION = 2"))
        running.send(signal.SIGHUP)
        await running.working()
        assert await jobs.add_and_wait("n", wait_timeout=10) == [2, running.pid]


@pytest.mark.crash
async def test_a_killed_supervisor_leaves_no_process(jobs: AnyQueue, server: Server, app: Path) -> None:
    async with worker(*SUPERVISED, cwd=app, url=server.url) as running:
        pids = [(await running.event("ready"))["worker_pid"] for _ in range(2)]
        job = await jobs.add("n", str(app / "never"))
        await handling(app)
        running.send(signal.SIGKILL)
        for pid in pids:
            await gone(pid)
        # The job was released before the end of its lease.
        assert await job.get_state() == "waiting"
        assert job.stalled_count == 0


@pytest.mark.crash
async def test_a_killed_supervisor_leaves_no_blocked_process(jobs: AnyQueue, server: Server, app: Path) -> None:
    (app / "jobs.py").write_text("import time\ntime.sleep(600)\n")
    async with worker(*SUPERVISED, cwd=app, url=server.url) as running:
        pids = [(await running.event("started"))["worker_pid"] for _ in range(2)]
        # The settings have been read, or will be. In both cases the socket ends.
        running.send(signal.SIGKILL)
        for pid in pids:
            await gone(pid)


async def test_a_burst_ends_when_no_job_waits(jobs: AnyQueue, server: Server, app: Path) -> None:
    added = await jobs.add_bulk([("n", None)] * 50)
    async with worker(*SUPERVISED, "--until-empty", cwd=app, url=server.url) as running:
        assert await running.code() == 0
    assert {await job.get_state() for job in added} == {"completed"}


async def test_the_supervisor_gives_up_when_its_processes_die_immediately(server: Server, app: Path) -> None:
    (app / "jobs.py").write_text("import os\nos._exit(9)\n")
    async with worker("--processes", "1", "--max-restarts", "1", cwd=app, url=server.url) as running:
        assert await running.code() == 7
        assert [line["exit_code"] for line in running.lines if line["event"] == "exited"] == [9, 9]
        [paused] = [line["seconds"] for line in running.lines if line["event"] == "waiting"]
        assert paused == 0.25
        logged = [line["event"] for line in running.lines]
        assert logged == ["started", "exited", "waiting", "started", "exited", "gave_up", "ended"]


async def test_a_process_that_never_claimed_counts_as_a_failed_start(
    app: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "STABLE_SECONDS", 1e-6)  # each has tried for longer than that
    (app / "jobs.py").write_text("import os\nos._exit(9)\n")
    settings = WorkerSettings("jobs:worker", str(app))
    async with asyncio.timeout(20):
        assert await supervisor.Supervisor(settings, 1, most_restarts=1).run() == 7


@pytest.mark.parametrize("options", [(), SUPERVISED], ids=["alone", "supervised"])
async def test_an_app_that_cannot_be_loaded_is_not_tried_again(
    server: Server, app: Path, options: tuple[str, ...]
) -> None:
    async with worker(*options, cwd=app, url=server.url, app="jobs:wroker") as running:
        assert await running.code() == 2
        said = [line for line in running.lines if line["message"].startswith("cannot load")]
        message = "cannot load 'jobs:wroker': module 'jobs' has no 'wroker': did you mean 'worker'?"
        assert {(line["message"], line["level"]) for line in said} == {(message, "error")}
        assert {line.get("worker") for line in said} <= ({1, 2} if options else {None})
        assert running.noise == []  # every line is an object
        assert "waiting" not in [line.get("event") for line in running.lines]
    async with start("worker", "jobs:wroker", *options, cwd=app, url=server.url) as running:
        assert await running.code() == 2
        names = ("glidemq [1]", "glidemq [2]") if options else ("glidemq",)  # as the lines of the log are marked
        assert any(f"{name}: {message}\n" in running.noise for name in names)


async def test_the_log_of_a_failure_has_a_separate_traceback(jobs: AnyQueue, server: Server, app: Path) -> None:
    (app / "jobs.py").write_text(
        APP.replace("while job.data", "if job.data is None: raise ValueError('bad')\n    while job.data")
    )
    async with worker(cwd=app, url=server.url) as running:
        job = await jobs.add("n")
        line = await running.line(lambda line: line["level"] == "error")
        assert line["message"] == f"job {job.id} (n) of q failed for good"
        assert (line["job_id"], line["logger"]) == (job.id, "glidemq_async.worker.reports")
        assert line["exception"].startswith("Traceback")
        assert line["exception"].endswith("ValueError: bad")


async def test_a_changed_file_replaces_the_process(jobs: AnyQueue, server: Server, app: Path) -> None:
    async with worker("--reload", cwd=app, url=server.url) as running:
        first = await running.event("ready")
        assert await jobs.add_and_wait("n", wait_timeout=10) == [1, first["worker_pid"]]
        (app / "jobs.py").write_text("def broken(:")
        await running.event("kept")
        (app / "jobs.py").write_text(APP.replace("VERSION = 1", "VERSION = 2"))
        changed = await running.event("changed")
        assert "jobs.py" in changed["message"]
        second = await running.event("ready")
        # The one that could not start, and the first.
        await running.count("exited", 2)
        assert await jobs.add_and_wait("n", wait_timeout=10) == [2, second["worker_pid"]]
        running.send(signal.SIGINT)
        assert await running.code() == 0


async def test_ctrl_c_in_a_terminal_counts_once(jobs: AnyQueue, server: Server, app: Path) -> None:
    # A terminal sends SIGINT to the whole group of processes in the foreground.
    async with worker(*SUPERVISED, cwd=app, url=server.url) as running:
        pids = [(await running.event("ready"))["worker_pid"] for _ in range(2)]
        assert all(os.getpgid(pid) == pid for pid in pids)


@pytest.mark.parametrize("options", [(), SUPERVISED], ids=["alone", "supervised"])
async def test_a_closed_terminal_ends_the_worker(
    jobs: AnyQueue, server: Server, app: Path, options: tuple[str, ...]
) -> None:
    ours, theirs = os.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    async with worker(*options, cwd=app, url=server.url, before=take_terminal) as running:
        os.close(theirs)
        await (running.event("ready") if options else running.working())
        os.close(ours)
        assert await running.code() == 0
        assert "restarting" not in [line.get("event") for line in running.lines]


async def test_log_lines_for_people_are_text(server: Server, app: Path) -> None:
    async with start("worker", "jobs", "--until-empty", cwd=app, url=server.url) as running:
        assert await running.code() == 0
        begun, stopped = running.noise
        assert "INFO worker.worker: worker" in begun
        assert "works on queue q" in begun
        assert "INFO worker.reports: worker" in stopped
        assert stopped.endswith("of queue q has stopped; ended runs: 0, released jobs: 0\n")


async def test_two_workers_in_one_loop_both_receive_a_signal(server: Server, jobs: AnyQueue) -> None:
    from glidemq_async import Worker
    from tests.support.helpers import echo

    workers = [Worker[Any, Any]("q", echo, server.url, shutdown_timeout=5) for _ in range(2)]
    running = [asyncio.create_task(one.run()) for one in workers]
    await until(lambda: all(one.health().ready for one in workers))
    os.kill(os.getpid(), signal.SIGTERM)
    await soon(asyncio.gather(*running))
    assert not any(one.health().ready for one in workers)
