"""The queues of a comparison have the same shape, and keep it while they are measured."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.bench import Bench, open_bench
from benchmarks.deep import DEEP_RUNS
from benchmarks.depth import depth_table, lines_table
from benchmarks.driven import Driven
from benchmarks.figures import MeasuredRows
from benchmarks.server import ServerCost, ask, running_server
from benchmarks.shapes import COMPARED, FEW, LINE, LINES, PHASES, SHAPES, SINGLE, job_of
from glidemq_async import Queue
from glidemq_async.functions.settle import SettleCalls, SettleReply, SettleRequest
from glidemq_async.storage.redis.wire import as_list, as_text


@asynccontextmanager
async def _driven() -> AsyncGenerator[tuple[Bench, Driven]]:
    with running_server() as url:
        async with open_bench(url) as bench, Queue[Any, Any]("deep", url) as queue:
            await queue.connect()
            yield bench, Driven(queue, "deep")


async def _lines(bench: Bench, queue: Driven) -> list[tuple[int, int]]:
    """Return the number of jobs in the text of each line, and behind it."""
    flat = as_list(await ask(bench.wire, "HGETALL", f"{queue.base}:key_lines")) or []
    found: list[tuple[int, int]] = []
    for key, text in zip(flat[::2], flat[1::2], strict=True):
        rest = await ask(bench.wire, "LLEN", f"{queue.base}:keyq:{as_text(key)}")
        found.append((as_text(text).count("\x1e") + 1, cast("int", rest)))
    return found


async def test_single_jobs_stay_single() -> None:
    async with _driven() as (bench, queue):
        assert await SHAPES[SINGLE].fill(queue, 300) == 300
        for _ in range(2):
            assert await _lines(bench, queue) == [(1, 0)] * 300
            keys = await queue.work(200)
            assert len(set(keys)) == 200
            await queue.replace(keys)


async def test_lines_keep_their_length_and_need_a_refill_equally_often() -> None:
    async with _driven() as (bench, queue):
        assert await SHAPES[LINES].fill(queue, 3_200) == 3_200
        for _ in range(2):
            lines = await _lines(bench, queue)
            assert [text + rest for text, rest in lines] == [LINE] * 32
            assert Counter(text for text, _ in lines) == dict.fromkeys(range(1, PHASES + 1), 4)
            keys = await queue.work(32)
            assert len(set(keys)) == 32
            await queue.replace(keys)


async def test_late_jobs_still_wait() -> None:
    async with _driven() as (_, queue):
        await SHAPES[LINES].fill(queue, 1_600)
        await queue.replace(await queue.work(16))
        for ids in queue.late:
            assert await queue.change("remove", ids[0]) == "ok"


async def test_plain_jobs_are_claimed_and_settled_as_by_a_worker() -> None:
    async with _driven() as (bench, queue):
        await SHAPES["plain"].fill(queue, FEW)
        await queue.work(100)
        before = await ServerCost.read(bench.wire)
        await queue.work(300)
        calls = (await ServerCost.read(bench.wire)).since(before).calls
        # A worker sends the start of its runs, so that the server looks up no run.
        assert not calls.get("xrange")
        # All claims are direct. The last call only settles.
        assert calls.get("exec") == calls["fcall"] // 2 + 1


async def test_the_starts_of_keyed_runs_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with _driven() as (_, queue):
        await SHAPES[SINGLE].fill(queue, FEW)
        settle, sent = queue.functions.settle, list[SettleRequest]()

        async def send(request: SettleRequest) -> SettleReply:
            sent.append(request)
            return await SettleCalls.send(settle, request)

        monkeypatch.setattr(queue.functions, "settle", SimpleNamespace(request=settle.request, send=send))
        await queue.work(300)
        groups = [arg for request in sent for arg in request.args if re.fullmatch(r"k\d*", str(arg))]
        assert len(groups) >= 3
        assert "k" not in groups


def test_like_is_compared_with_like_and_long_lines_are_compared_with_single_jobs() -> None:
    assert {f"deep, {shape}" for shape in SHAPES} == DEEP_RUNS.keys()
    figures = MeasuredRows()
    for shape, cost in zip(COMPARED, (2.0, 4.0, 8.0), strict=True):
        for depth, factor in (("shallow", 1.0), ("deep", 1.05)):
            figures.add(0, {f"{depth}, {shape}: addJob": {"server_us": cost * factor, "command_us": cost}})
    added = [line for line in depth_table(figures) if line[0].endswith("addJob")]
    assert added == [[f"{shape}: addJob", "1.05", "1.00"] for shape in COMPARED]
    assert [line[1] for line in lines_table(figures) if line[0].endswith("addJob")] == ["2.00", "2.00", "2.10"]


@pytest.mark.parametrize(("shape", "job"), [("plain", "plain job"), (SINGLE, "keyed job (1 job for each key)")])
def test_a_shape_is_named_in_a_sentence(shape: str, job: str) -> None:
    assert job_of(shape) == job
