"""Documents are values of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

from glidemq_async.ops import as_document


@dataclass(frozen=True, slots=True)
class Row:
    at: datetime
    lasts: timedelta
    parts: tuple[object, ...]


def test_a_dataclass_becomes_an_object() -> None:
    at = datetime(2026, 11, 26, 13, 5, tzinfo=timezone(timedelta(hours=1)))
    found = as_document(Row(at, timedelta(seconds=1.5), (1, None, True)))
    assert found == {"at": "2026-11-26T12:05:00Z", "lasts": 1.5, "parts": [1, None, True]}


def test_a_stored_instant_has_milliseconds() -> None:
    at = datetime(2026, 11, 26, 12, 5, 1, 340_000, tzinfo=UTC)
    assert as_document(at) == "2026-11-26T12:05:01.340Z"
    # An instant of a payload keeps what it has.
    assert as_document(at.replace(microsecond=340_001)) == "2026-11-26T12:05:01.340001Z"


def test_every_payload_can_be_shown() -> None:
    payload = {1: b"\xff", "id": UUID(int=1), "far": float("inf"), "set": {2, 1}, "naive": datetime(2026, 1, 1)}  # noqa: DTZ001
    found = json.loads(json.dumps(as_document(payload), allow_nan=False))
    assert found == {
        "1": "\\xff",
        "id": "00000000-0000-0000-0000-000000000001",
        "far": "inf",
        "set": [1, 2],
        "naive": "2026-01-01T00:00:00",
    }
    assert as_document(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00Z"
