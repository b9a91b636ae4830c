"""A FastAPI service with 200 clients: the time of a request and of its `add`, and the cost of the process.

Four processes share the machine: the service, its worker, the server, and the load. The rates leave the service idle
time. Without a limit, 200 clients that never pause mainly measure the queue in front of one busy process.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from .bench import Bench
from .call_times import processor_times
from .http_service import PHASE
from .meter import Metrics, Rows, latency_metrics

RATES: Final = (500, 1_000, 0)
"""Requests per second of all clients; 0: each client sends as soon as it has its response."""
START_SECONDS: Final = 60.0


async def fastapi_service(bench: Bench, requests: int) -> Rows:
    """Send this many requests through the service at each rate."""
    with tempfile.TemporaryDirectory() as directory:
        found = Path(directory) / "found"
        port = _free_port()
        service = _program(bench, "-m", "benchmarks.http_service", str(port), str(found))
        times = processor_times(bench.wire, "fastapi_service")
        async with times as rows, _program(bench, "-m", "benchmarks.http_service", "worker"), service:
            await _answers(port)
            await _load(port, 9, requests // 10, 0)  # warm up
            loads = [await _load(port, phase, requests, rate) for phase, rate in enumerate(RATES)]
        inside: dict[str, Any] = json.loads(found.read_text())
    for phase, (rate, load) in enumerate(zip(RATES, loads, strict=True)):
        if load["accepted"] != requests:
            raise RuntimeError(f"{load['accepted']} of {requests} requests were accepted; the run is void")
        row = f"FastAPI, 200 clients, {f'{rate:,}/s' if rate else 'no rest'}"
        rows[f"{row}: request"] = _metrics(load, inside[str(phase)]["processor"] / requests)
        rows[f"{row}: add"] = latency_metrics(inside[str(phase)]["adds"])
    return rows


def _metrics(load: dict[str, Any], processor: float) -> Metrics:
    point = load["ms"]
    return {
        "rate": load["per_second"],
        "client_us": processor * 1e6,
        "p50_us": point["50"] * 1e3,
        "p99_us": point["99"] * 1e3,
        "most_us": point["100"] * 1e3,
    }


@asynccontextmanager
async def _program(bench: Bench, *command: str) -> AsyncGenerator[Process]:
    env = {**os.environ, "GLIDEMQ_URL": bench.url}
    process = await asyncio.create_subprocess_exec(sys.executable, *command, env=env, stdout=PIPE)
    try:
        yield process
        process.terminate()
        await asyncio.wait_for(process.communicate(), START_SECONDS)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _load(port: int, phase: int, requests: int, rate: int) -> dict[str, Any]:
    command = ["-m", "benchmarks.http_load", str(port), "--first", str(phase * PHASE), "--requests", str(requests)]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, "--rate", str(rate), stdout=PIPE)
    output, _ = await process.communicate()
    report: dict[str, Any] = json.loads(output)
    return report


async def _answers(port: int) -> None:
    async with asyncio.timeout(START_SECONDS):
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                return
            await asyncio.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
