"""The table of docs/schedulers.md about clock changes matches the behaviour of schedules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from glidemq_async import Schedule
from tests.docs.blocks import ROOT

MADRID = ZoneInfo("Europe/Madrid")
SPRING = (datetime(2026, 3, 29, 1, 30, tzinfo=MADRID), datetime(2026, 3, 29, 3, 30, tzinfo=MADRID))
AUTUMN = (datetime(2026, 10, 25, 2, 0, tzinfo=MADRID), datetime(2026, 10, 25, 2, 59, tzinfo=MADRID, fold=1))
ROW = re.compile(r"^\| `(?P<cron>[^`]+)` \| (?P<spring>[^|]+) \| (?P<autumn>[^|]+) \|$", re.MULTILINE)
ROWS = [
    found.groups()
    for found in ROW.finditer((ROOT / "docs" / "schedulers.md").read_text())
    if re.match(r"[\d*]", found["cron"])
]


def slots(cron: str, first: datetime, last: datetime) -> Iterator[str]:
    schedule = Schedule(cron=cron, tz="Europe/Madrid")
    found = schedule.next_after(first.astimezone(UTC) - timedelta(seconds=1))
    while found is not None and found <= last.astimezone(UTC):
        local = found.astimezone(MADRID)
        yield f"{local:%H:%M}{' again' if local.fold else ''}"
        found = schedule.next_after(found)


def test_the_table_of_clock_changes_has_five_rows() -> None:
    assert len(ROWS) == 5


@pytest.mark.parametrize(("cron", "spring", "autumn"), ROWS)
def test_each_row_is_true(cron: str, spring: str, autumn: str) -> None:
    assert (", ".join(slots(cron, *SPRING)) or "none") == spring
    assert (", ".join(slots(cron, *AUTUMN)) or "none") == autumn
