"""The benchmarks run at tiny sizes, compute every figure that they promise, and compare it with its target."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import cast

import pytest

from benchmarks.figures import MeasuredRows, MedianAndRange
from benchmarks.meter import latency_metrics, percentile
from benchmarks.report import page
from benchmarks.targets import TARGETS, judge

ROOT = Path(__file__).parents[2]
RATES = (
    "add, one by one",
    "add, 50 callers",
    "add, bulk",
    "drain, concurrency 1",
    "drain, concurrency 10",
    "drain, concurrency 100",
    "drain, typed tasks",
    "drain, tasks with a dependency and middleware",
    "raw add",
    "raw drain",
    "raw drain, batched",
    "raw drain, bare connection",
    "whole life",
    "  addJob",
    "  settleAndClaim",
    "naive whole life",
    "whole life, AOF everysec",
    "whole life, prioritized",
    "whole life, LIFO",
    "whole life, keyed (many keys)",
    "whole life, keyed (few keys)",
    "whole life, keyed with a concurrency limit",
    "whole life, keyed with a window",
    "whole life, keyed with a token bucket",
)
LATENCIES = (
    "add, one by one",
    "empty function call",
    "idle: add -> handler",
    "idle, plain: add -> handler",
    "idle, prioritized: add -> handler",
    "idle, LIFO: add -> handler",
    "idle, keyed: add -> handler",
    "delayed: due -> handler",
    "request/reply",
    "subprocess: there and back",
    "request/reply, subprocess",
    "subprocess, forkserver: first start",
    "subprocess, forkserver: every other start",
    "subprocess, spawn: first start",
    "subprocess, spawn: every other start",
)


DEEP_CHANGES = tuple(
    f"deep, {shape}: {change}"
    for shape in ("plain", "prioritized", "keyed, 1 job for each key", "keyed, 100 jobs for each key")
    for change in ("revoke", "change_priority", "remove")
)
TURNS = tuple(
    f"{depth}, {shape}: {step}"
    for depth in ("shallow", "deep")
    for shape in ("plain", "keyed, 1 job for each key", "keyed, 100 jobs for each key")
    for step in ("addJob", "settleAndClaim")
)


async def run_benchmarks(*arguments: str, path: str | None = None) -> tuple[int | None, str]:
    """Run tiny benchmarks; `path` replaces the PATH, for example to hide the server of the lean part."""
    environment = dict(os.environ) if path is None else {**os.environ, "PATH": path}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks", "--tiny", *arguments, cwd=ROOT, stdout=PIPE, env=environment
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, output.decode()


# Each of about forty samples runs in a separate process. The lean part, which needs redis-server, has its own test.
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_every_figure_is_measured(tmp_path: Path) -> None:
    written = tmp_path / "bench.md"
    status, output = await run_benchmarks("--json", "--output", str(written), path=str(tmp_path))
    assert status == 0
    figures = cast("dict[str, dict[str, list[float]]]", json.loads(output)["figures"])
    for row in RATES:
        for metric in ("rate", "client_us", "command_us", "server_us"):
            assert figures[row][metric][0] > 0, (row, metric)
    for row in LATENCIES:
        assert 0 < figures[row]["p50_us"][0] <= figures[row]["p99_us"][0], row
    for row in TURNS:
        assert figures[row]["command_us"][0] > 0, row
        assert figures[row]["server_us"][0] > 0, row
    for row in DEEP_CHANGES:
        assert 0 < figures[row]["p50_us"][0] <= figures[row]["p99_us"][0] <= figures[row]["most_us"][0], row
    for row in ("drain in steps", "clean in steps"):
        assert 0 < figures[row]["p50_us"][0] <= figures[row]["most_us"][0], row
    assert -1 < figures["10 idle workers"]["extra_calls"][0] < 10
    assert figures["whole life"]["command_us"][0] == pytest.approx(
        figures["  addJob"]["command_us"][0] + figures["  settleAndClaim"]["command_us"][0]
    )
    text = written.read_text(encoding="utf-8")
    assert "| whole life |" in text
    # (There are too few idle workers here for the row of 200.)
    assert [line for line in text.splitlines() if "not measured" in line and "200 idle workers" not in line] == []
    assert str(ROOT) not in text


async def test_a_missed_target_fails_the_check() -> None:
    # Only adding is measured, so all other targets are missed.
    status, output = await run_benchmarks("--check", "--only", "add_bulk")
    assert status == 1
    assert "MISSED" in output


def test_percentiles_are_of_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 50) == 2.0
    assert percentile([float(n) for n in range(1, 101)], 99) == 99.0
    assert latency_metrics([]) == {}


def test_ratios_are_computed_for_each_round() -> None:
    figures = MeasuredRows()
    for number, slowness in enumerate((1, 2, 10)):
        figures.add(number, {"ours": {"rate": 30 / slowness}, "raw": {"rate": 60 / slowness}})
    assert figures.ratio("ours", "raw", "rate") == MedianAndRange(0.5, 0.5, 0.5)
    assert figures.ratio("ours", "nobody", "rate") is None
    assert figures.spread("ours", "rate") == MedianAndRange(15.0, 3.0, 30.0)


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_targets_are_judged_in_both_directions(factor: float) -> None:
    for target in TARGETS:
        found = MedianAndRange(target.value * factor, 0, 0)
        assert target.met(found) is ((factor < 1) == (target.bound == "<="))


def test_a_missing_figure_does_not_meet_its_target() -> None:
    assert not any(verdict.met for verdict in judge(MeasuredRows()))
    assert "not measured" in page(MeasuredRows(), 1, {})
