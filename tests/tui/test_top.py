"""`glidemq top` at 80 columns and 24 lines: navigation, filters, previews, and what reaches the terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import DataTable, Input, Static

from glidemq_async import Queue, UnrecoverableError
from glidemq_async.errors import StorageUnavailable
from glidemq_async.ops.core import Ops
from glidemq_async.ops.overview import Overviews
from glidemq_async.tui.app import Top
from glidemq_async.tui.dialogs import HelpDialog, PreviewDialog
from glidemq_async.tui.source import TopSource, sparkline
from glidemq_async.tui.views import UnknownCommand, parse_command
from tests.support.helpers import AnyJob, AnyQueue, counts, ended, worker_of

SIZE = (80, 24)
STEERING = "\x1b]0;owned\x07\x9b31m\x7f\u202e[bold]"


async def broken(job: AnyJob) -> None:
    await job.log(f"connecting {STEERING}")
    raise UnrecoverableError(f"TimeoutError: no reply {STEERING}")


async def until(pilot: Pilot[Any], found: Callable[[], object]) -> None:
    """Let the application run until it shows something."""
    deadline = asyncio.get_running_loop().time() + 20
    while not found():
        assert asyncio.get_running_loop().time() < deadline, f"it shows {text(pilot.app, 'verdict')!r}"
        await pilot.pause(0.02)


def table_of(top: App[Any]) -> DataTable[object]:
    return cast("DataTable[object]", top.screen_stack[0].query_one("#table", DataTable))


def rows(top: App[Any]) -> list[list[str]]:
    """Return the cells of the table."""
    table = table_of(top)
    return [[str(cell) for cell in table.get_row(key)] for key in table.rows]


def text(top: App[Any], name: str) -> str:
    """Return the text of a line or page."""
    return str(top.screen_stack[0].query_one(f"#{name}", Static).content)


async def command(pilot: Pilot[Any], line: str) -> None:
    """Type a command or a filter."""
    await pilot.press("colon" if line[0] == ":" else "slash")
    pilot.app.query_one("#prompt", Input).value = line
    await pilot.press("enter")


async def failures(q: AnyQueue, count: int) -> list[str]:
    """Let jobs fail, and return their ids."""
    async with worker_of(q, broken, concurrency=count):
        return [(await ended(job)).id for job in await q.add_bulk([("send", {"to": "ada"})] * count)]


async def test_enter_goes_down_and_escape_goes_up(top: Top, q: AnyQueue) -> None:
    [job_id] = await failures(q, 1)
    async with top.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: rows(top))
        assert rows(top)[0][0] == "mail"
        await pilot.press("enter")
        await until(pilot, lambda: top.view.kind == "jobs" and rows(top))
        assert rows(top)[0][1:3] == [job_id, "mail"]
        await pilot.press("enter")
        await until(pilot, lambda: "cause" in text(top, "text"))
        assert "unrecoverable" in text(top, "text")
        assert '{"to": "ada"}' in text(top, "text")
        await pilot.press("l")
        await until(pilot, lambda: "connecting" in text(top, "text"))
        await pilot.press("e")
        await until(pilot, lambda: "fail" in text(top, "text"))
        assert text(top, "path") == f"queues > jobs of mail > explanation of {job_id}"
        await pilot.press("escape", "escape")
        await until(pilot, lambda: top.view.kind == "queues" and rows(top))
        await pilot.press("escape")
        assert top.view.kind == "queues"


async def test_commands_and_filters_select_rows(top: Top, q: AnyQueue) -> None:
    await failures(q, 2)
    await q.add("resize", delay=600)
    async with Queue[Any, Any]("images", q.storage), top.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: len(rows(top)) == 2)
        await command(pilot, "/imag")
        await until(pilot, lambda: [row[0] for row in rows(top)] == ["images"])
        await command(pilot, ":jobs state:failed")
        await until(pilot, lambda: len(rows(top)) == 2)
        await command(pilot, "/name:resize")
        await until(pilot, lambda: [row[3] for row in rows(top)] == ["resize"])
        await command(pilot, "/nme:resize")
        await pilot.pause()
        assert top.view.wanted == "name:resize"
        for kind in ("failures", "workers", "schedulers", "audit", "queues"):
            await command(pilot, f":{kind}")
            assert top.view.kind == kind


async def test_a_failure_group_opens_its_jobs(top: Top, q: AnyQueue) -> None:
    ids = await failures(q, 3)
    await q.add("other")

    async def other(_: AnyJob) -> None:
        raise UnrecoverableError("of another kind")

    async with worker_of(q, other):
        await ended((await q.get_jobs("waiting"))[0])
    async with top.run_test(size=SIZE) as pilot:
        await command(pilot, ":failures")
        await until(pilot, lambda: len(rows(top)) == 2)
        error, count, trend, _, name, queue, *_, message = rows(top)[1]
        assert (error, count, trend.strip(), name, queue) == ("UnrecoverableError", "3", "█", "send", "mail")
        assert "no reply" in message
        await command(pilot, "/send")
        await until(pilot, lambda: len(rows(top)) == 1)
        await pilot.press("enter")
        await until(pilot, lambda: top.view.kind == "jobs" and rows(top))
        assert {row[1] for row in rows(top)} == set(ids)


def test_a_sparkline_shows_each_count() -> None:
    assert sparkline([0, 0, 1, 0, 100, 100, 50, 50]) == " ▁█▄"
    assert sparkline([0] * 24) == " " * 12


def test_an_unknown_command_suggests_the_nearest() -> None:
    with pytest.raises(UnknownCommand, match="did you mean 'workers'"):
        parse_command(":workrs")


async def test_nothing_changes_before_the_user_permits_it(top: Top, q: AnyQueue) -> None:
    await failures(q, 1)
    async with top.run_test(size=SIZE) as pilot:
        await command(pilot, ":jobs")
        await until(pilot, lambda: rows(top))
        for key in ("r", "c", "s", "x", "p"):
            await pilot.press(key)
            assert not isinstance(top.screen, PreviewDialog), key
        # The mode comes first, so that a long sentence of a narrow terminal does not hide it.
        assert text(top, "verdict").split("  ")[1].strip() == "read only"
    assert await counts(q) == {"failed": 1}


async def test_marked_jobs_are_retried_after_a_preview(top: Top, q: AnyQueue, ops: Ops) -> None:
    await failures(q, 3)
    late = await q.add("late", delay=600)
    async with top.run_test(size=SIZE) as pilot:
        await command(pilot, ":jobs")
        await until(pilot, lambda: len(rows(top)) == 4)
        order = [row[1] for row in rows(top)]
        assert order[0] == late.id
        await pilot.press("w", "space", "space", "space", "r")
        assert isinstance(top.screen, PreviewDialog)
        assert str(top.screen.query_one("#dialog-title", Static).content) == "Run again: 2 jobs"
        assert "not changed: 1 delayed" in str(top.screen.query_one("#dialog-lines", Static).content)
        await pilot.press("escape")
        assert await counts(q) == {"failed": 3, "delayed": 1}
        await pilot.press("r", *"deploy", "enter")
        await until(pilot, lambda: sum(row[4] == "waiting" for row in rows(top)) == 2)
    assert await counts(q) == {"failed": 1, "waiting": 2, "delayed": 1}
    lines = (await ops.audit.read()).lines
    assert {(one.source, one.actor, one.action, one.reason) for one in lines} == {
        ("tui", "ada@host", "retry", "deploy")
    }
    assert sorted(one.target for one in lines) == sorted(order[1:3])


async def test_jobs_are_cancelled_promoted_and_deleted(top: Top, q: AnyQueue) -> None:
    for name in ("a", "b", "c"):
        await q.add("n", job_id=name, delay=600)
    async with top.run_test(size=SIZE) as pilot:
        await pilot.press("w")
        for job_id, key in (("a", "c"), ("b", "s"), ("c", "x")):
            await command(pilot, f":jobs id:{job_id}")
            await until(pilot, partial(listed, top, job_id, "delayed"))
            await pilot.press(key, "enter")
            await until(pilot, lambda: not rows(top) or rows(top)[0][4] != "delayed")
    assert {job.id: job.state for job in await q.search_jobs()} == {"a": "failed", "b": "waiting"}


def listed(top: Top, job_id: str, state: str) -> bool:
    return [(row[1], row[4]) for row in rows(top)] == [(job_id, state)]


async def test_a_queue_is_paused_and_resumed(top: Top, q: AnyQueue) -> None:
    await q.add("n")
    async with top.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: rows(top))
        await pilot.press("w", "p")
        assert isinstance(top.screen, PreviewDialog)
        await pilot.press("enter")
        await until(pilot, lambda: rows(top)[0][1] == "paused")
        assert await q.is_paused()
        await pilot.press("p", "enter")
        await until(pilot, lambda: rows(top)[0][1] == "")
        assert not await q.is_paused()


async def test_nothing_raw_reaches_the_terminal(top: Top, q: AnyQueue) -> None:
    await failures(q, 1)
    async with top.run_test(size=SIZE) as pilot:
        await command(pilot, ":jobs state:failed")
        await until(pilot, lambda: rows(top))
        shown = [cell for row in rows(top) for cell in row]
        for key in ("d", "l"):
            await pilot.press(key)
            await until(pilot, lambda: text(top, "text"))
            shown.append(text(top, "text"))
        assert "owned" in "".join(shown)
        assert [c for line in shown for c in line if not c.isprintable() and c != "\n"] == []


async def test_a_thousand_queues_fit(top: Top, ops: Ops) -> None:
    queues = [Queue[Any, Any](f"q{number:04}", ops.storage) for number in range(1_000)]
    for at in range(0, 1_000, 100):
        await asyncio.gather(*(queue.connect() for queue in queues[at : at + 100]))
    async with top.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: len(rows(top)) == 1_000)
        assert "1,000 queues" in text(top, "verdict")
        await command(pilot, "/q0999")
        await until(pilot, lambda: [row[0] for row in rows(top)] == ["q0999"])
    for queue in queues:
        await queue.close()


async def test_a_reading_without_changes_draws_nothing(
    top: Top, q: AnyQueue, ops: Ops, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[object] = []
    async with top.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: rows(top))
        for name in ("update_cell", "clear", "add_row"):
            monkeypatch.setattr(table_of(top), name, drawn.append)
        readings = ops.live.readings
        await until(pilot, lambda: ops.live.readings >= readings + 2)
        await pilot.pause()
    assert drawn == []


async def test_the_verdict_names_the_reason(top: Top, q: AnyQueue) -> None:
    await q.add("n")
    await q.pause()
    async with top.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "mail is paused" in text(top, "verdict"))
        assert text(top, "verdict").startswith(" behind ")


async def test_jobs_that_fail_are_a_verdict(top: Top, q: AnyQueue) -> None:
    await failures(q, 30)
    async with top.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: text(top, "verdict").startswith(" failing "))
        assert "of the jobs of mail failed" in text(top, "verdict")


async def test_help_lists_the_keys(top: Top) -> None:
    async with top.run_test(size=SIZE) as pilot:
        await pilot.press("question_mark")
        assert isinstance(top.screen, HelpDialog)
        await pilot.press("escape")
        assert not isinstance(top.screen, HelpDialog)


async def test_a_lost_server_is_shown_in_the_verdict(ops: Ops, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> list[str]:
        raise StorageUnavailable("the server is away")

    monkeypatch.setattr(Overviews, "names", fail)
    top = Top(TopSource(ops))
    async with top.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: "the server is away" in text(top, "verdict"))
