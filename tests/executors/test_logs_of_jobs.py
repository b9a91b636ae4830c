"""Log records of jobs in processes reach the worker's logging as if the jobs ran in the worker."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from glidemq_async.executors import SubprocessExecutor
from glidemq_async.telemetry import JobFilter, JobLogging, JsonFormatter
from tests.executors import handlers, speakers
from tests.support.helpers import AnyQueue, Heard, ended, soon, worker_of

pytestmark = pytest.mark.only_on("memory")

OURS = "glidemq_async.executors.subprocess"


class Listener(logging.Handler):
    """Keeps records with the fields of their jobs. Tests can wait for records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self._heard: asyncio.Queue[logging.LogRecord] = asyncio.Queue()
        self.addFilter(JobFilter())

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self._heard.put_nowait(record)

    async def next(self) -> logging.LogRecord:
        """Wait for the next record."""
        return await soon(self._heard.get())

    def texts(self, name: str = speakers.__name__) -> list[str]:
        return [record.getMessage() for record in self.records if record.name == name]


@contextmanager
def listening_to(name: str = "", level: int = logging.INFO) -> Generator[Listener]:
    listener, logger = Listener(), logging.getLogger(name)
    before = logger.level
    logger.addHandler(listener)
    logger.setLevel(level)
    try:
        yield listener
    finally:
        logger.removeHandler(listener)
        logger.setLevel(before)


@pytest.fixture
def heard() -> Iterator[Listener]:
    with listening_to() as listener:
        yield listener


def speaking(queue: AnyQueue, executor: Any = "subprocess", **options: Any) -> Any:
    return worker_of(queue, speakers.by_name, executor=executor, instrumentation=[JobLogging()], **options)


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
async def test_records_arrive_unchanged(queue: AnyQueue, heard: Listener, method: Any) -> None:
    async with speaking(queue, SubprocessExecutor(1, start_method=method)):
        job = await queue.add("speak", attempts=3)
        pid = await job.result(20)
    plain, wrong, between = (one for one in heard.records if one.name.startswith(("tests.", "speakers.")))
    assert (plain.name, plain.levelno, plain.getMessage()) == (speakers.__name__, logging.INFO, "one of 2")
    fields: Any = vars(plain)
    assert (fields["tenant"], fields["odd"], fields["numbers"], fields["large"]) == (
        "acme",
        "<odd>",
        [1, 2],
        str(2**80),
    )
    assert (plain.process, plain.funcName, plain.filename) == (pid, "speak", "speakers.py")
    for record in (plain, wrong, between):
        fields = vars(record)
        assert (fields["queue"], fields["job_id"], fields["job_name"], fields["attempt"]) == (
            queue.name,
            job.id,
            "speak",
            1,
        )
    assert (wrong.levelname, wrong.exc_info) == ("ERROR", None)
    shown = logging.Formatter().format(wrong)
    assert "went wrong\nTraceback (most recent call last):" in shown
    assert "KeyError: 'missing'" in shown
    assert "Stack (most recent call last):" in shown
    line = json.loads(JsonFormatter().format(wrong))
    assert line["exception"].endswith("KeyError: 'missing'")
    assert not {"exc_text", "exc_info"} & line.keys()
    assert (between.name, between.levelno, between.getMessage()) == ("speakers.never.seen", 35, "between ? levels")


async def test_records_of_coroutines_exits_and_set_up_arrive(queue: AnyQueue, heard: Listener) -> None:
    executor = SubprocessExecutor(1, setup=speakers.introduce)
    async with speaking(queue, executor):
        assert heard.texts("speakers.started")
        assert [vars(one)["job_id"] for one in heard.records if one.name == "speakers.started"] == [None]
        await ended(await queue.add("speak_later"))
        await ended(await queue.add("speak_and_die"))
    assert heard.texts() == ["from a coroutine", "the last words"]


async def test_levels_follow_the_levels_of_the_worker(queue: AnyQueue, heard: Listener) -> None:
    logger = logging.getLogger(speakers.__name__)

    async def enabled() -> Any:
        return await queue.add_and_wait("speak_of_levels", wait_timeout=20)

    try:
        logger.setLevel(logging.WARNING)
        async with speaking(queue, SubprocessExecutor(1)):
            assert await enabled() == [False, False, True]
            await queue.add_and_wait("speak", wait_timeout=20)
            assert heard.texts() == ["went wrong"]
            logger.setLevel(logging.DEBUG)
            async with asyncio.timeout(10):
                while await enabled() != [True, True, True]:
                    pass
            logger.setLevel(logging.NOTSET)
            logging.disable(logging.WARNING)
            async with asyncio.timeout(10):
                while await enabled() != [False, False, False]:
                    pass
    finally:
        logging.disable(logging.NOTSET)
        logger.setLevel(logging.NOTSET)


async def test_handlers_and_levels_of_the_worker_apply(queue: AnyQueue) -> None:
    """A logger that the worker has disabled since stays silent, and a failing handler affects nothing else."""

    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError("broken")

    logger = logging.getLogger(speakers.__name__)
    with listening_to() as heard, listening_to(speakers.__name__) as nearer:
        async with speaking(queue, SubprocessExecutor(1)):
            await queue.add_and_wait("speak_later", wait_timeout=20)
            assert heard.texts() == nearer.texts() == ["from a coroutine"]
            logger.disabled = True
            await queue.add_and_wait("speak_later", wait_timeout=20)
            logger.disabled = False
            nearer.addFilter(Broken())
            await queue.add_and_wait("speak_later", wait_timeout=20)
    assert len(nearer.texts()) == 1


async def test_a_thread_that_was_left_behind_logs_for_no_job(queue: AnyQueue, heard: Listener) -> None:
    async with speaking(queue, SubprocessExecutor(1)):
        await queue.add_and_wait("leave_a_speaker", wait_timeout=20)
        assert await queue.add_and_wait("let_it_speak", wait_timeout=20)
    [record] = [one for one in heard.records if one.name == speakers.__name__]
    assert (record.getMessage(), vars(record)["job_id"]) == ("from who was left behind", None)


async def test_records_of_idle_processes_arrive_too(queue: AnyQueue, heard: Listener) -> None:
    async with speaking(queue, SubprocessExecutor(1)):
        await queue.add_and_wait("leave_a_child_that_continues", wait_timeout=20)
        for _ in range(100):
            await heard.next()
        # No record may be left between the worker and the next job.
        assert await queue.add_and_wait("speak_of_levels", wait_timeout=20)


async def test_long_records_are_truncated(queue: AnyQueue, heard: Listener) -> None:
    async with speaking(queue):
        job = await ended(await queue.add("speak_at_length"))
    assert job.failed_reason is None
    [record] = [one for one in heard.records if one.name == speakers.__name__]
    assert 1_000 < len(record.getMessage()) < 20_000
    assert 100 < len(vars(record)["long"]) < 20_000


async def test_a_job_that_logs_too_much_gets_a_notice_and_no_delay(queue: AnyQueue, heard: Listener) -> None:
    async with speaking(queue, SubprocessExecutor(1)):
        seconds = await queue.add_and_wait("chatter", 30_000, wait_timeout=40)
    texts = heard.texts()
    assert texts[:3] == ["chatter 0", "chatter 1", "chatter 2"]
    assert 500 < len(texts) < 1_000 * (seconds + 2)
    left_out = [one for one in heard.records if "dropped" in one.getMessage()]
    assert left_out
    assert {one.name for one in left_out} == {OURS}
    assert sum(int(one.getMessage().split()[0]) for one in left_out) == 30_000 - len(texts)


async def test_a_process_cannot_harm_the_worker_by_records(queue: AnyQueue, heard: Listener) -> None:
    async with speaking(queue, SubprocessExecutor(1)):
        job = await ended(await queue.add("claim_to_be_others"))
        assert job.failed_reason is None
        await queue.add_and_wait("speak_later", wait_timeout=20)
    made_up = [one for one in heard.records if one.name.startswith("made.up.")]
    assert len(made_up) == 50
    assert {one.exc_info for one in made_up} == {None}
    assert not [name for name in logging.root.manager.loggerDict if name.startswith("made")]


async def test_a_worker_that_does_not_read_delays_no_job(queue: AnyQueue, heard: Listener, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    async with speaking(queue, SubprocessExecutor(1)) as worker:
        active = Heard(worker, "active")
        job = await queue.add("log_without_a_reader", str(pipe))
        await active.next()
        async with asyncio.timeout(10):
            while not heard.texts():
                await heard.next()
        # The loop of the worker is blocked until all records are written.
        assert float(pipe.read_text()) < 5
        await job.result(20)
    texts = heard.texts()
    left_out = [int(one.getMessage().split()[0]) for one in heard.records if "dropped" in one.getMessage()]
    assert left_out
    assert len(texts) + sum(left_out) == 300


async def test_a_process_that_does_not_count_its_records_is_bounded_too(queue: AnyQueue, heard: Listener) -> None:
    async with speaking(queue, SubprocessExecutor(1)):
        seconds = await queue.add_and_wait("flood", 20_000, wait_timeout=40)
    assert 1_000 < len(heard.texts("flood")) < 2_000 * (seconds + 2)


async def test_a_log_record_is_not_a_heartbeat(queue: AnyQueue, heard: Listener) -> None:
    """If it were one, a change of log levels could end runs."""
    executor = SubprocessExecutor(1, heartbeat_timeout=0.3, grace=0)
    async with speaking(queue, executor):
        job = await ended(await queue.add("silent_but_logging"))
    assert "heartbeat_timeout" in (job.failed_reason or "")


async def test_a_logged_record_is_not_also_written_to_output(queue: AnyQueue, heard: Listener) -> None:
    async with speaking(queue, SubprocessExecutor(1, capture_output=True)):
        job = await ended(await queue.add("speak"))
    assert await queue.get_job_logs(job.id) == []
    assert len(heard.texts()) == 2


async def test_a_job_without_log_records_runs_unchanged(queue: AnyQueue) -> None:
    async with worker_of(queue, handlers.echo, executor="subprocess"):
        assert await queue.add_and_wait("n", 1, wait_timeout=20) == 1


async def test_logging_set_up_by_imported_code_is_undone_by_default(queue: AnyQueue, heard: Listener) -> None:
    executor = SubprocessExecutor(1, setup=speakers.set_up_logging, capture_output=True)
    async with speaking(queue, executor):
        job = await ended(await queue.add("speak_later"))
    assert (heard.texts(), await queue.get_job_logs(job.id)) == (["from a coroutine"], [])

    executor = SubprocessExecutor(1, setup=speakers.set_up_logging, capture_output=True, forward_logs=False)
    async with speaking(queue, executor):
        job = await ended(await queue.add("speak_later"))
    assert (heard.texts(), await queue.get_job_logs(job.id)) == (["from a coroutine"], ["mine: from a coroutine"])
