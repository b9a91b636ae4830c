"""Confine a task to the files and resources that were granted. Needs Linux 5.13."""

import asyncio
import socket
import subprocess
from pathlib import Path
from typing import Any

from glidemq_async import GlideMQ, Job, JobFailed, Permissions

FOLDER = Path("/tmp/glidemq-permissions")

mq = GlideMQ("memory://")
granted = Permissions(write=[FOLDER / "out"], memory="1GiB", cpu=10)


@mq.task(permissions=granted)
def write_result(text: str) -> str:
    (FOLDER / "out" / "result.txt").write_text(text)
    return "written"


@mq.task(permissions=granted)
def read_secret() -> str:
    return (FOLDER / "secret.txt").read_text()


@mq.task(permissions=granted)
def connect() -> None:
    socket.create_connection(("127.0.0.1", 9))


@mq.task(permissions=granted)
def start_program() -> None:
    subprocess.run(["true"], check=True)


@mq.task(permissions=granted)
def take_memory() -> int:
    return len(bytearray(2**31))


async def main() -> None:
    (FOLDER / "out").mkdir(parents=True, exist_ok=True)
    (FOLDER / "secret.txt").write_text("a password")
    async with mq, mq.worker():
        jobs: list[Job[Any, Any]] = [
            await write_result.add("done"),
            await read_secret.add(),
            await connect.add(),
            await start_program.add(),
            await take_memory.add(),
        ]
        for job in jobs:
            try:
                print(f"{job.name}: {await job.result(timeout=20)}")
            except JobFailed as error:
                print(f"{job.name}: {error.error_type}")


if __name__ == "__main__":
    asyncio.run(main())
