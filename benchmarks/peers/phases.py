"""Runs the phases of one candidate as processes, each with a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncGenerator
from typing import Any, Final, cast

from benchmarks.meter import Metrics, Rows, latency_metrics
from benchmarks.peers.catalogue import Candidate
from benchmarks.peers.harness import FIRST, RESULT
from benchmarks.venvs import ROOT, python_in

PHASE_SECONDS: Final = 120.0
IDLE_JOBS: Final = 320
WARM_UP: Final = 20
LINE_BYTES: Final = 1 << 22


class PhaseFailed(Exception):
    """A phase ended without a result, or not within its time limit."""


async def fill_and_drain(candidate: Candidate, url: str) -> Rows:
    """Fill the queue and drain it. Return the figures by phase."""
    added = await _phase(candidate, "add", url, candidate.jobs)
    worked = await _phase(candidate, "work", url, candidate.jobs)
    return cast("Rows", added) | {"drain": cast("Metrics", worked["drain"])}


async def idle_latency(candidate: Candidate, url: str) -> Metrics:
    """Return the percentiles of the time from the call of `add` to the first line of the handler."""
    async with (
        asyncio.timeout(PHASE_SECONDS),
        _process(candidate, "idle", url, IDLE_JOBS) as worker,
        _process(candidate, "trickle", url, IDLE_JOBS) as producer,
    ):
        await _lines_until(worker, "idle", FIRST)
        assert producer.stdin is not None
        producer.stdin.write(b"\n")
        await producer.stdin.drain()
        called = (await _result(producer, "trickle"))["called"]
        started = (await _result(worker, "idle"))["started"]
    return latencies(called, started)


def latencies(called: dict[str, float], started: dict[str, float]) -> Metrics:
    """Match the times of calls and starts; leave out the first jobs, which pay for connections and caches."""
    return latency_metrics([started[number] - called[number] for number in called if int(number) >= WARM_UP])


async def _phase(candidate: Candidate, role: str, url: str, jobs: int) -> dict[str, Any]:
    try:
        async with asyncio.timeout(PHASE_SECONDS), _process(candidate, role, url, jobs) as process:
            return await _result(process, role)
    except TimeoutError as error:
        raise PhaseFailed(f"{role}: no result within {PHASE_SECONDS:g} s") from error


@contextlib.asynccontextmanager
async def _process(candidate: Candidate, role: str, url: str, jobs: int) -> AsyncGenerator[Process]:
    """Run one role. The process and its children end with the block."""
    command = [str(python_in(candidate.name)), "-m", "benchmarks.peers.harness", candidate.name, role, url, str(jobs)]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=STDOUT, cwd=ROOT, start_new_session=True, limit=LINE_BYTES
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _result(process: Process, role: str) -> dict[str, Any]:
    line = await _lines_until(process, role, RESULT)
    return cast("dict[str, Any]", json.loads(line.partition(RESULT)[2]))


async def _lines_until(process: Process, role: str, mark: str) -> str:
    assert process.stdout is not None
    last = "no output"
    async for raw in process.stdout:
        line = raw.decode(errors="replace").strip()
        if mark in line:
            return line
        last = line or last
    raise PhaseFailed(f"{role}: {last}")
