"""Operations that must continue to work under permissions: functions of a target that return something true."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path

from glidemq_async.executors import Permissions
from glidemq_async.executors.subprocess import child
from glidemq_async.executors.subprocess.link import WorkerSocket
from glidemq_async.jobs.snapshot import RunValues
from glidemq_async.payloads.serialization import MsgpackSerializer
from tests.executors import handlers
from tests.executors.attacks import Target


def use_the_library(target: Target) -> object:
    """Import modules that were not imported yet, with their data, and use a time zone."""
    import difflib
    import sqlite3
    import ssl
    import zoneinfo
    from xml.etree import ElementTree

    with sqlite3.connect(f"{target.work}/data.sqlite") as database:
        database.execute("create table words (word)")
        database.execute("insert into words values ('kept')")
    madrid = zoneinfo.ZoneInfo("Europe/Madrid").key == "Europe/Madrid"
    parsed = ElementTree.fromstring("<a/>").tag == "a"
    certificates = ssl.create_default_context().cert_store_stats()
    return madrid and parsed and "x509" in certificates and list(difflib.ndiff(["a"], ["a"])) == ["  a"]


def use_the_application(target: Target) -> object:
    import importlib

    deeper = importlib.import_module("package.deeper.inner").answer
    space = importlib.import_module("space.deploy.run").__name__
    return [importlib.import_module("module").answer, deeper, space] == [42, 43, "space.deploy.run"]


def use_threads_and_loops(target: Target) -> object:
    found: list[int] = []
    thread = threading.Thread(target=found.append, args=(1,))
    thread.start()
    thread.join()

    async def work() -> int:
        return await asyncio.to_thread(lambda: 2)

    return found == [1] and asyncio.run(work()) == 2


def use_files(target: Target) -> object:
    with open(target.readable, encoding="utf-8") as file:
        read = file.read()
    first, second = Path(target.work, "one"), Path(target.work, "deeper", "two")
    second.parent.mkdir()
    first.write_text(read)
    first.rename(second)
    with second.open("r+") as file:
        file.truncate(3)
    with tempfile.TemporaryDirectory(dir=target.work) as directory:
        Path(directory, "three").write_bytes(os.urandom(8))
    return second.read_text() == "may" and os.listdir(target.work) == ["deeper"]


def use_signals(target: Target) -> object:
    got: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: got.append(number))
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR1)
    return len(got) == 2


def use_a_granted_port(target: Target) -> object:
    with socket.create_connection(("127.0.0.1", target.granted_tcp), timeout=2) as connection:
        return connection.recv(5) == b"hello"


def use_the_network(target: Target) -> object:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(target.unix)
        greeted = client.recv(5) == b"hello"
    with socket.create_server(("127.0.0.1", 0)) as server:
        return greeted and server.getsockname()[1]


def use_programs(target: Target) -> object:
    done = subprocess.run(
        [sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True, check=False, timeout=20
    )
    return done.stdout == "42\n"


def use_as_many_processes_as_granted(target: Target) -> object:
    children: list[int] = []
    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        children.append(pid)
    return [os.waitpid(pid, 0)[0] for pid in children] == children


def be_the_process_of_a_job(target: Target) -> object:
    """Run a job as a child does that may have only one process, without a new thread."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        config = {
            "permissions": asdict(Permissions(processes=1, read=True, network=True)),
            "levels": None,
            "main": ["", ""],
            "setup": "",
            "handlers": [f"{handlers.__name__}:start_a_thread"],
            "storage_disabled": False,
        }
        os._exit(child.JobProcess(WorkerSocket(theirs), config).live())
    theirs.close()
    link = WorkerSocket(ours)
    frames = link.frames()
    ready = next(frames, None)
    assert ready is not None
    assert ready[0] == "ready", ready
    job = RunValues("1", "n", MsgpackSerializer().dumps(None), b"", 1, "", 0, 0, 0, 0, None, None, None, None)
    link.send("run", 1, f"{handlers.__name__}:start_a_thread", "q", 1000, list(job), None, None)
    assert next(frames, None) == ["begun", 1]
    done = next(frames, None)
    assert done is not None
    link.send("stop")
    assert os.waitpid(pid, 0) == (pid, 0)
    return MsgpackSerializer().loads(done[2]) == "RuntimeError"


def use_everything(target: Target) -> object:
    Path(target.outside, "new").write_text("granted")
    Path(target.outside, "new").chmod(0o600)
    return use_programs(target) and use_the_network(target) and use_files(target)


def resolve_a_name(target: Target) -> object:
    return socket.getaddrinfo("glidemq.invalid", 80)


def fail_far_away(target: Target) -> object:
    try:
        return Path(target.secret).read_text()
    except OSError as error:
        raise ValueError("no input") from error


def fail_in_a_group(target: Target) -> object:
    async def read() -> object:
        return fail_far_away(target)

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(read())

    return asyncio.run(both())


def fail_otherwise(target: Target) -> object:
    return os.stat("/usr/nowhere")
