"""Jobs that attack their worker over the channel. A child imports this file by its name."""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from glidemq_async import Job
from glidemq_async.executors.subprocess.frames import packed
from glidemq_async.payloads.serialization import MsgpackSerializer

AnyJob = Job[Any, Any]
CHANNEL = 3
jobs: list[str] = []
next_began = threading.Event()
forged = threading.Event()


def send(*frame: object) -> None:
    """Write a frame without the checks of the library."""
    data = packed(*frame)
    while data:
        data = data[os.write(CHANNEL, data) :]


def run_of(job: AnyJob) -> int:
    """Return the number of the run, which frames of its child must carry."""
    updates: Any = job._client.functions.updates  # pyright: ignore[reportPrivateUsage]
    number: int = updates._run
    return number


def answer_for_others(job: AnyJob) -> Any:
    """Send results for this run and for later ones, then return a normal one."""
    if job.data == "forge":
        for number in (run_of(job), 1, 2, 3, 1, 2, 3):
            send("done", number, MsgpackSerializer().dumps("forged"), 0, False)
    return job.data


def forge_later(job: AnyJob) -> Any:
    """Leave a thread behind that sends results for the second to the tenth run of this process during the next run."""

    def forge() -> None:
        next_began.wait(20)
        for number in range(2, 11):
            send("done", number, MsgpackSerializer().dumps("forged"), 0, False)
        forged.set()

    if job.data == "forge":
        threading.Thread(target=forge, daemon=True).start()
    else:
        next_began.set()
        forged.wait(20)
    return job.data


def count_jobs(job: AnyJob) -> list[str]:
    """Return the jobs that ran in this process."""
    jobs.append(job.id)
    return jobs


def send_a_broken_outcome(job: AnyJob) -> None:
    run, texts = run_of(job), ["ValueError", "no", "", ""]
    large = ["V" * 200_000, "m" * 200_000, "", "p" * 200_000]
    frames: dict[str, list[object]] = {
        "no texts": ["failed", run, ["builtins", "ValueError", [], [7, None, b"\xff"], []], 0, False],
        "too few texts": ["failed", run, ["builtins", "ValueError", [], [], []], 0, False],
        "no lineage": ["failed", run, ["builtins", "ValueError", [], texts, [[1]]], 0, False],
        "no error": ["failed", run, 7, 0, False],
        "endless memory": ["done", run, MsgpackSerializer().dumps(1), float("inf"), False],
        "no number of memory": ["done", run, MsgpackSerializer().dumps(1), float("nan"), False],
        "long texts": [
            "failed",
            run,
            ["builtins", "ValueError", [], large, []],
            0,
            False,
        ],
    }
    send(*frames[job.data])
    sys.stdin.read()
    os.kill(os.getpid(), 19)


def arguments(job: AnyJob) -> list[str]:
    return [*sys.argv, *(part for part in sys.orig_argv if "secret" in part)]


def log_with_control_characters(job: AnyJob) -> int:
    """Claim to be another process, and send characters that terminals execute as commands."""
    values = {"name": "app", "levelno": 40, "msg": "\x1b[2Jgone\rforged\x9b", "exc_text": "\x1b]0;title\x07"}
    send("record", job.id, {**values, "process": 1, "pathname": "/worker.py"})
    return os.getpid()


def flood_with_records(job: AnyJob) -> None:
    for _ in range(job.data):
        send("record", job.id, {"name": "flood", "levelno": 40, "msg": "x" * 8_000})


def by_name(job: AnyJob) -> Any:
    """Run the handler with the job's name."""
    return globals()[job.name](job)


def log_a_long_line(job: AnyJob) -> None:
    job.sync.log("x" * job.data)


async def log_a_long_line_later(job: AnyJob) -> None:
    await job.log("x" * job.data)


def log_lines(job: AnyJob) -> float:
    began = time.monotonic()
    for number in range(job.data):
        job.sync.log(f"{number}")
    return time.monotonic() - began


async def log_lines_later(job: AnyJob) -> float:
    began = time.monotonic()
    for number in range(job.data):
        await job.log(f"{number}")
    return time.monotonic() - began


def report_fast(job: AnyJob) -> None:
    for number in range(job.data):
        job.sync.update_progress(number)


async def report_fast_later(job: AnyJob) -> None:
    for number in range(job.data):
        await job.update_progress(number)


def spoil_the_output(job: AnyJob) -> None:
    """Truncate the file of stdout, write into it, and make it refuse writers that would have to wait."""
    for action in (
        lambda: os.ftruncate(1, 0),
        lambda: os.pwrite(1, b"forged", 0),
        lambda: os.posix_fallocate(1, 0, 2**20),
    ):
        with suppress(OSError):
            action()
    os.set_blocking(1, False)
    os.write(1, b"\x1b[2Jplain\x9b \xc2\x9b\r\n")
    os.write(2, b"to stderr\n")


def write_much(job: AnyJob) -> None:
    for _ in range(job.data):
        left = b"x" * 63_999 + b"\n"
        while left:  # a write ends early if the process is stopped and continued meanwhile
            left = left[os.write(1, left) :]


def print_numbers(job: AnyJob) -> None:
    # The pipe has room for the whole text. The worker therefore reads all lines at once.
    os.write(1, "".join(f"{number}\n" for number in range(job.data)).encode())
