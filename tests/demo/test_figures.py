"""The figures of the demonstration are computed: planted defects are found."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from glidemq_async import EventGap, Queue, QueueEvent, Worker
from glidemq_async.demo.jobs.audit import Figures, audit
from glidemq_async.demo.jobs.event_counts import EventCounts
from glidemq_async.demo.jobs.measure import FLAKY_PERCENT, Measure, SourceFile, is_flaky, measure, process

SOURCE = """\
import os
from sys import path, argv

class Thing:
    def first(self):
        if os:
            return 1
        elif path:
            return 2
        else:
            for _ in argv:
                pass

async def second(a, b):
    try:
        return [x async for x in a if x] or b
    except OSError:
        return None
"""


def event(kind: str, job_id: str) -> QueueEvent:
    return QueueEvent(kind, job_id, datetime.now(UTC), "", "0")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def tally_of(*events: QueueEvent | EventGap) -> EventCounts:
    async def stream() -> AsyncIterator[QueueEvent | EventGap]:
        for one in events:
            yield one

    tally = EventCounts()
    await tally.follow(stream())
    return tally


async def figures_of(root: Path, *, acknowledged: list[str] | None = None, tally: EventCounts | None = None) -> Figures:
    """Measure three files, and audit them with a planted defect."""
    for n in range(3):
        (root / f"file_{n}.py").write_text(SOURCE)
    async with Queue[SourceFile, Measure]("audited", "memory://") as queue:
        jobs = await queue.add_bulk([("measure", SourceFile(root=str(root), file=f"file_{n}.py")) for n in range(3)])
        await Worker("audited", process, queue.storage, handle_signals=False).run(until_empty=True)
        return await audit(queue, acknowledged or [job.id for job in jobs], tally or EventCounts())


async def test_a_run_without_faults_is_clean(tmp_path: Path) -> None:
    figures = await figures_of(tmp_path)
    assert (figures.jobs, figures.completed, figures.lost, figures.duplicates) == (3, 3, 0, 0)
    assert figures.clean


async def test_an_acknowledged_job_that_did_not_end_is_lost(tmp_path: Path) -> None:
    figures = await figures_of(tmp_path, acknowledged=["1", "2", "3", "4"])
    assert (figures.lost, figures.strangers, figures.clean) == (1, 0, False)


async def test_an_ended_job_that_was_not_acknowledged_is_unknown(tmp_path: Path) -> None:
    figures = await figures_of(tmp_path, acknowledged=["1", "2"])
    assert (figures.lost, figures.strangers, figures.clean) == (0, 1, False)


async def test_a_second_final_event_is_a_duplicate(tmp_path: Path) -> None:
    tally = await tally_of(event("completed", "1"), event("completed", "2"), event("failed", "1"))
    figures = await figures_of(tmp_path, tally=tally)
    assert (figures.duplicates, figures.clean) == (1, False)


async def test_the_tally_counts_gaps_and_ends_at_the_pause() -> None:
    tally = await tally_of(event("added", "1"), EventGap(7, "0"), event("paused", ""), event("completed", "1"))
    assert (tally.missed, tally.done, tally.by_kind["added"]) == (7, 0, 1)


def test_a_file_is_measured(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    found = measure(tmp_path, "a.py")
    assert found == Measure(
        file="a.py",
        status="measured",
        problem="",
        size=len(SOURCE),
        lines=18,
        functions=2,
        classes=1,
        imports=3,
        nesting=4,
        longest=8,
        longest_name="first",
        complexity=9,
        hardest=5,
        hardest_name="second",
    )


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"def (", "unparsable"),
        (b"\xff\xfe", "unparsable"),
        (b"x = '\0'", "unparsable"),
        (b"-" * 200_000 + b"1", "unparsable"),
    ],
)
def test_a_file_that_does_not_parse_is_a_result(content: bytes, status: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(content)
    found = measure(tmp_path, "a.py")
    assert found["status"] == status
    assert found["problem"]


def test_a_missing_file_is_a_result(tmp_path: Path) -> None:
    assert measure(tmp_path, "gone.py")["status"] == "unreadable"


def test_about_eight_percent_of_the_files_are_always_flaky() -> None:
    names = [f"some/path/module_{n}.py" for n in range(5_000)]
    flaky = [name for name in names if is_flaky(name)]
    assert flaky == [name for name in names if is_flaky(name)]
    assert 0.8 * FLAKY_PERCENT < len(flaky) / len(names) * 100 < 1.2 * FLAKY_PERCENT
