"""Jobs that reply for other jobs, or flood their worker, over the channel of their process."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from glidemq_async.executors import Permissions, SubprocessExecutor
from glidemq_async.executors.sandbox import landlock
from glidemq_async.executors.subprocess.channel import Channel, Flow
from glidemq_async.executors.subprocess.frames import ANY_SIZE, packed
from glidemq_async.executors.subprocess.pool import PooledChild
from glidemq_async.executors.subprocess.receiving import Receiver
from glidemq_async.executors.subprocess.run import ChildRun
from tests.executors import hostile
from tests.support.helpers import AnyQueue, ended, worker_of

pytestmark = pytest.mark.only_on("memory")
confined = pytest.mark.skipif(sys.platform != "linux" or landlock.version() < 1, reason="Landlock is not here")


async def test_no_job_replies_for_a_later_one(queue: AnyQueue) -> None:
    async with worker_of(queue, hostile.answer_for_others, executor=SubprocessExecutor(1)):
        await queue.add_and_wait("n", "forge", wait_timeout=20)
        assert [await queue.add_and_wait("n", number, wait_timeout=20) for number in range(4)] == [0, 1, 2, 3]


async def test_a_thread_that_a_job_left_behind_cannot_guess_the_number_of_the_next_run(queue: AnyQueue) -> None:
    async with worker_of(queue, hostile.forge_later, executor=SubprocessExecutor(1)):
        assert await queue.add_and_wait("n", "forge", wait_timeout=20) == "forge"
        assert await queue.add_and_wait("n", "next", wait_timeout=20) == "next"


@confined
async def test_confined_jobs_share_no_process_by_default(queue: AnyQueue) -> None:
    async with worker_of(queue, hostile.count_jobs, executor=SubprocessExecutor(1, permissions=Permissions())):
        assert [len(await queue.add_and_wait("n", wait_timeout=20)) for _ in range(3)] == [1, 1, 1]
    executor = SubprocessExecutor(1, permissions=Permissions(), max_jobs=2)
    async with worker_of(queue, hostile.count_jobs, executor=executor):
        assert [len(await queue.add_and_wait("n", wait_timeout=20)) for _ in range(3)] == [1, 2, 1]


@pytest.mark.parametrize(
    "what", ["no texts", "too few texts", "no lineage", "no error", "endless memory", "no number of memory"]
)
async def test_an_invalid_outcome_is_a_failure(queue: AnyQueue, what: str) -> None:
    async with worker_of(queue, hostile.send_a_broken_outcome, executor=SubprocessExecutor(1, grace=0.1)):
        job = await ended(await queue.add("n", what))
    assert (job.failed_reason or "").startswith("ExecutorError: the process of the job sent an invalid outcome")


async def test_the_texts_of_an_error_are_bounded(queue: AnyQueue) -> None:
    async with worker_of(queue, hostile.send_a_broken_outcome, executor=SubprocessExecutor(1, grace=0.1)):
        job = await ended(await queue.add("n", "long texts"))
    assert len(job.failed_reason or "") == 500


async def test_the_arguments_of_the_worker_are_not_passed_on(queue: AnyQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["worker", "--url", "redis://user:secret@host"])
    async with worker_of(queue, hostile.arguments, executor=SubprocessExecutor(1)):
        assert await queue.add_and_wait("n", wait_timeout=20) == ["worker"]


async def test_records_name_their_process_and_contain_no_control_characters(
    queue: AnyQueue, caplog: pytest.LogCaptureFixture
) -> None:
    async with worker_of(queue, hostile.log_with_control_characters, executor=SubprocessExecutor(1)):
        pid = await queue.add_and_wait("n", wait_timeout=20)
    [record] = [one for one in caplog.records if one.name == "app"]
    assert record.process == pid
    assert record.getMessage() == r"\x1b[2Jgone\x0dforged\x9b"
    assert record.exc_text == r"\x1b]0;title\x07"


async def test_a_flood_of_records_is_dropped_and_counted(queue: AnyQueue, caplog: pytest.LogCaptureFixture) -> None:
    async with worker_of(queue, hostile.flood_with_records, executor=SubprocessExecutor(1)):
        await queue.add_and_wait("n", 2_500, wait_timeout=60)
    handled = sum(one.name == "flood" for one in caplog.records)
    [warning] = [one.getMessage() for one in caplog.records if "were dropped here" in one.getMessage()]
    assert f"{2_500 - handled} log records" in warning


async def test_no_turn_of_the_loop_takes_more_than_its_share() -> None:
    turns: list[int] = [0]
    seen = 0

    def aside(frame: list[Any], size: int) -> bool:
        nonlocal seen
        seen += 1
        turns[-1] += 1
        return True

    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    channel = await Channel.over(ours, ANY_SIZE, aside=aside)
    sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(theirs, packed("record") * 20_000))
    while seen < 20_000:
        turns.append(0)
        await asyncio.sleep(0)
    await sending
    channel.close()
    theirs.close()
    assert max(turns) <= 128


async def test_a_process_is_read_no_faster_than_its_rate() -> None:
    ours, theirs = socket.socketpair()
    channel = await Channel.over(ours, ANY_SIZE, flow=Flow(frames=200, bytes=2**20))
    theirs.sendall(packed("call") * 1_000)
    loop = asyncio.get_running_loop()
    channel.begin(ANY_SIZE)
    began = loop.time()
    for _ in range(1_000):
        assert await channel.receive() == ["call"]
    channel.close()
    theirs.close()
    # Two windows may be open at the beginning of a run.
    assert loop.time() - began >= 2.9


async def test_replies_to_a_job_that_does_not_read_are_bounded(queue: AnyQueue) -> None:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    channel = await Channel.over(ours, ANY_SIZE)
    child = PooledChild(1, channel, asyncio.get_running_loop().create_future(), Receiver())
    serving = asyncio.create_task(ChildRun(child, await queue.add("n"), None).serve())
    calls = packed("call", 0, 1, "k" * 1_000, b"") * 5_000
    sending = asyncio.create_task(asyncio.get_running_loop().sock_sendall(theirs, calls))
    while not channel.is_full:
        await asyncio.sleep(0)
    # The reader has had its turns by then, and waits for its peer.
    for _ in range(1_000):
        await asyncio.sleep(0)
    transport = cast("asyncio.Transport", channel._transport)  # pyright: ignore[reportPrivateUsage]
    assert transport.get_write_buffer_size() < 2**20
    assert not sending.done()
    for task in (sending, serving):
        task.cancel()
    await asyncio.gather(sending, serving, return_exceptions=True)
    channel.close()
    theirs.close()


async def test_a_flooded_worker_serves_its_other_jobs(queue: AnyQueue) -> None:
    executor = SubprocessExecutor(2, warm=2, bytes_per_second=4 * 2**20)
    async with worker_of(queue, hostile.by_name, executor=executor, concurrency=2):
        flood = await queue.add("flood_with_records", 2_000)
        answered = [await queue.add_and_wait("answer_for_others", number, wait_timeout=20) for number in range(20)]
        # 16 MB at 4 MiB per second take 2 seconds at least.
        assert await flood.get_state() == "active"
        assert answered == list(range(20))
        await ended(flood)


def worker_with_output(out: Path, handler: str, data: object, options: str) -> str:
    """Return the program of a worker whose own output is a file, with one job."""
    return f"""
import asyncio, os, sys
from glidemq_async import Queue, Worker
from glidemq_async import JobBudget
from glidemq_async.executors import Permissions, SubprocessExecutor
from tests.executors import hostile

async def main():
    os.write(1, b"before\\n")
    async with Queue("q", "memory://") as queue:
        async with Worker("q", hostile.{handler}, queue.storage, executor=SubprocessExecutor(1{options})):
            await queue.add_and_wait("n", {data!r}, wait_timeout=60)
    os.write(1, b"after\\n" if os.get_blocking(1) else b"spoiled\\n")

if __name__ == "__main__":
    asyncio.run(main())
"""


async def run_with_output(tmp_path: Path, handler: str, data: object, options: str = "") -> tuple[bytes, bytes]:
    """Run such a worker and return the contents of its output files."""
    script = tmp_path / "program.py"
    script.write_text(worker_with_output(tmp_path, handler, data, options))
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        process = await asyncio.create_subprocess_exec(
            sys.executable, str(script), stdout=out, stderr=err, env={**os.environ, "PYTHONPATH": os.getcwd()}
        )
        async with asyncio.timeout(60):
            status = await process.wait()
    assert status == 0, (tmp_path / "err").read_text()
    return (tmp_path / "out").read_bytes(), (tmp_path / "err").read_bytes()


async def test_a_job_cannot_reach_the_output_of_the_worker(tmp_path: Path) -> None:
    out, err = await run_with_output(tmp_path, "spoil_the_output", None)
    assert out == b"before\n\x1b[2Jplain\x9b \xc2\x9b\r\nafter\n"
    assert b"to stderr\n" in err


@confined
async def test_output_of_confined_jobs_contains_no_control_characters(tmp_path: Path) -> None:
    out, _ = await run_with_output(tmp_path, "spoil_the_output", None, ", permissions=Permissions()")
    assert out == b"before\n\\x1b[2Jplain\x9b \\x9b\\x0d\nafter\n"


async def test_much_output_is_complete_but_not_faster_than_its_rate(tmp_path: Path) -> None:
    began = asyncio.get_running_loop().time()
    out, _ = await run_with_output(tmp_path, "write_much", 150)
    assert len(out) == len(b"before\n") + 150 * 64_000 + len(b"after\n")
    # 9.6 MB at 4 MiB a second begin in the third second.
    assert asyncio.get_running_loop().time() - began >= 2


async def test_output_that_is_missing_in_a_log_is_counted(queue: AnyQueue) -> None:
    async with worker_of(queue, hostile.print_numbers, executor=SubprocessExecutor(1, capture_output=True)):
        job = await ended(await queue.add("n", 5_000))
    # A log keeps 1,000 lines: the notice and the last 999 lines of the output.
    notice, *numbers = await queue.get_job_logs(job.id)
    assert notice.endswith("4001 lines of output were dropped here")
    assert numbers == [str(number) for number in range(4_001, 5_000)]
