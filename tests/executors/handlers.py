"""The handlers that the child processes of these tests run. A child imports this file by its name."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glidemq_async import Job, Queue, RateLimited, RetryLater, UnrecoverableError
from glidemq_async.jobs.context import current_job

AnyJob = Job[Any, Any]
SLEEP = ["sleep", "600"]
prepared: list[int] = []
seen: list[int] = []


class OddError(Exception):
    """A type that the worker could import, but does not."""


class NeverAgain(UnrecoverableError):
    """A subclass of an error of the library."""


def kill_the_guard(job: AnyJob) -> None:
    """Kill the parent of this process, and this process with it."""
    os.kill(os.getppid(), signal.SIGKILL)
    threading.Event().wait()


def prepare() -> None:
    prepared.append(os.getpid())


def broken_setup() -> None:
    raise RuntimeError("no licence")


def read_a_closed_file() -> None:
    Path("/etc/fstab").read_text()


def echo(job: AnyJob) -> Any:
    return job.data


def hold_lock(job: AnyJob) -> str:
    """Lock a file. Job "a" keeps the lock for ever, ignoring its abort. Others return whether the file was free."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with Path(job.data).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return "locked"
        if job.name == "a":
            Path(f"{job.data}.held").touch()
            threading.Event().wait()
    return "free"


async def echo_later(job: AnyJob) -> Any:
    await asyncio.sleep(0)
    return job.data


def describe(job: AnyJob) -> dict[str, Any]:
    """Describe the job and the process as a child sees them."""
    return {
        "pid": os.getpid(),
        "guard": os.getppid(),
        "job": [job.id, job.name, job.queue, job.key, job.attempts_made, job.fence, dict(job.headers)],
        "current": current_job() is job,
        "descriptors": {fd: str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in _descriptors()},
        "inheritable": [fd for fd in _descriptors() if fd > 2 and os.get_inheritable(int(fd))],
        "environment": dict(os.environ),
        "prepared": prepared == [os.getpid()],
    }


def _descriptors() -> list[int]:
    found = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    return [fd for fd in sorted(found) if Path(f"/proc/self/fd/{fd}").exists() or fd <= 3]


def by_name(job: AnyJob) -> Any:
    """Run the handler with the job's name, so that many handlers share one worker."""
    return globals()[job.name](job)


def pid(job: AnyJob) -> int:
    return os.getpid()


async def report(job: AnyJob) -> Any:
    await job.log("one")
    await job.update_progress({"done": 50})
    await job.update_data([job.data, "changed"])
    for chunk in ("a", {"b": 2}):
        await job.stream(chunk)
    await job.heartbeat()
    return job.data


def report_plainly(job: AnyJob) -> Any:
    job.sync.log("one")
    job.sync.update_progress({"done": 50})
    job.sync.update_data([job.data, "changed"])
    for chunk in ("a", {"b": 2}):
        job.sync.stream(chunk)
    job.sync.heartbeat()
    return job.data


async def steps(job: AnyJob) -> Any:
    """Run steps, and fail in the first run. Each execution leaves a line in the log of the job."""

    async def effect(number: int) -> list[int]:
        await job.log(f"step {number}")
        return [number]

    found = await asyncio.gather(*(job.step("effect", effect, number) for number in (1, 2)))
    if job.fence == 1:
        raise ValueError("again")
    return found


def misuse(job: AnyJob) -> list[str]:
    messages: list[str] = []
    bad: Any = 7
    calls: list[Callable[[], object]] = [
        lambda: job.sync.log(bad),
        lambda: asyncio.run(job.remove()),
        lambda: next(job.sync.chunks()),
        lambda: next(job.sync.watch()),
        lambda: job.sync.step("x", len, "a"),
    ]
    for call in calls:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the test checks its type
            messages.append(f"{type(error).__name__}: {error}")
    return messages


def converse(job: AnyJob) -> Any:
    """Suspend the job, delay it, and return what the last run got."""
    if job.step_name is None:
        job.sync.suspend("waits for a", signals=["a"], timeout=60, step="two")
    if job.step_name == "two":
        job.sync.move_to_delayed(0, step="three")
    return [job.resumed_by, job.step_name, [[one.name, one.data] for one in job.signals]]


def fail(job: AnyJob) -> None:
    """Raise the exception that the data names."""
    kinds: dict[str, BaseException] = {
        "value": ValueError("not a number"),
        "odd": OddError("odd"),
        "unicode": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        "never": NeverAgain("no such page"),
        "later": RetryLater(30),
        "limited": RateLimited(30),
        "exit": SystemExit(3),
        "counted": RetryLater(0.01, count=True),
    }
    if job.data == "counted":
        raise kinds[job.data] from kinds["odd"]
    raise kinds[job.data]


def end_process(job: AnyJob) -> Any:
    """End this process as the data says, or return normally."""
    ways: dict[str, Callable[[], object]] = {
        "exit 0": lambda: os._exit(0),
        "exit 3": lambda: os._exit(3),
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "crash": lambda: ctypes.string_at(0),
    }
    return ways[job.data]() if job.data in ways else os.getpid()


def close_channel(job: AnyJob) -> None:
    with socket.socket(fileno=os.dup(3)) as channel:
        channel.shutdown(socket.SHUT_RDWR)
    time.sleep(60)


def write_nonsense(job: AnyJob) -> None:
    os.write(3, b"\xff" * 64)
    time.sleep(60)


def huge(job: AnyJob) -> bytes:
    return bytes(job.data)


def unsendable(job: AnyJob) -> object:
    return object()


def grow(job: AnyJob) -> int:
    seen.append(1)
    kept.append(b"x" * job.data)
    return os.getpid()


kept: list[bytes] = []


def fork_and_return(job: AnyJob) -> str:
    """Fork. The forked copy returns too."""
    pid = os.fork()
    if pid == 0:
        return "forked"
    os.waitpid(pid, 0)
    return "own"


def start_others(job: AnyJob) -> None:
    """Start a process in this group, one in another session, and an orphan; then hang."""
    note = Path(job.data)
    group = subprocess.Popen(SLEEP)
    session = subprocess.Popen(SLEEP, start_new_session=True)
    orphan = subprocess.run(
        [
            *(sys.executable, "-S", "-c"),
            f"import subprocess as s; print(s.Popen({SLEEP!r}, start_new_session=True, stdout=s.DEVNULL).pid)",
        ],
        stdout=subprocess.PIPE,
        check=True,
    )
    pids = [os.getpid(), os.getppid(), group.pid, session.pid, int(orphan.stdout)]
    part = note.with_suffix(".part")
    part.write_text(" ".join(str(pid) for pid in pids))
    part.rename(note)
    time.sleep(600)


def hang(job: AnyJob) -> None:
    job.sync.log(f"{os.getpid()}")
    time.sleep(600)


def hang_and_ignore_abort(job: AnyJob) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    job.sync.log(f"{os.getpid()}")
    time.sleep(600)


def return_after_abort(job: AnyJob) -> str:
    job.sync.log(f"{os.getpid()}")
    job.abort.wait_in_thread(30)
    job.sync.log(f"aborted: {job.abort.reason}")
    return "done all the same"


async def clean_up(job: AnyJob) -> None:
    try:
        await job.log(f"{os.getpid()}")
        await asyncio.sleep(600)
    finally:
        await job.log(f"cleaned up: {job.abort.reason}")


def clean_up_plainly(job: AnyJob) -> None:
    try:
        job.sync.log(f"{os.getpid()}")
        time.sleep(600)
    finally:
        job.sync.log(f"cleaned up: {job.abort.reason}")


def ignore_strangers(job: AnyJob) -> str:
    # Such a signal is handled before this returns.
    signal.raise_signal(signal.SIGTERM)
    return "still here"


def print_lines(job: AnyJob) -> None:
    print("to stdout")
    print("to stderr", file=sys.stderr)
    os.write(1, b"to the descriptor\n")
    subprocess.run(["echo", "by another process"], check=True)
    print("without an end", end="")
    if job.data == "die":
        sys.stdout.flush()
        os._exit(9)


def beat(job: AnyJob) -> str:
    for _ in range(job.data):
        job.sync.heartbeat()
        time.sleep(0.05)
    return "alive"


async def work_for(job: AnyJob) -> int:
    """Work for as long as the data says, with another process running; note its id."""
    seconds, note = job.data
    other = subprocess.Popen(SLEEP)
    with Path(note).open("a") as file:
        file.write(f"{os.getpid()} {other.pid}\n")
    await asyncio.sleep(seconds)
    other.kill()
    other.wait()
    return 1


def spin(seconds: float) -> float:
    """Use this much processor time; return the total of this process."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    return time.process_time()


def spin_first() -> None:
    spin(1.1)


def spin_and_measure(job: AnyJob) -> list[float]:
    return [os.getpid(), spin(job.data)]


def start_a_thread(job: AnyJob) -> str:
    try:
        threading.Thread(target=print).start()
    except RuntimeError as error:
        return type(error).__name__
    return "started"


def read_pipe(path: str) -> str:
    """Wait until a process writes to a named pipe and closes it."""
    return Path(path).read_text() if path else "nothing"


def add(first: int, second: int = 0) -> int:
    return first + second


def refused_and(job: AnyJob) -> None:
    """Read a file without the permission for it, and react as the data says."""
    path, what = job.data
    try:
        Path(path).read_text()
    except PermissionError:
        if what == "later":
            raise RetryLater(600) from None
        if what == "never":
            raise UnrecoverableError("not for us")  # noqa: B904 - by its context, too
        if what == "other":
            raise ValueError("another matter") from None
        raise


def leave_a_thread(job: AnyJob) -> None:
    """Leave a thread behind that makes a call of this job when the next one runs."""

    def ask() -> None:
        resume_thread.wait(30)
        try:
            job.sync.update_data("changed by another job")
            messages.append("done")
        except Exception as error:  # noqa: BLE001 - the next job returns it
            messages.append(f"{type(error).__name__}: {error}")

    left.append(threading.Thread(target=ask, daemon=True))
    left[0].start()


def meet_the_thread(job: AnyJob) -> list[str]:
    resume_thread.set()
    left[0].join(30)
    return messages


resume_thread = threading.Event()
left: list[threading.Thread] = []
messages: list[str] = []


# Many programs have this line at the top of a module that children import too.
elsewhere: Queue[Any, Any] = Queue("elsewhere")


async def add_to_the_default(job: AnyJob) -> str:
    async with elsewhere:
        return (await elsewhere.add("n")).id


def state_home(job: AnyJob) -> Any:
    return os.environ.get("XDG_STATE_HOME")
