"""Numbers, durations and drawings of the pages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from glidemq_async import Backoff
from glidemq_async.ops.documents import as_document

pytest.importorskip("starlette")
pytest.importorskip("jinja2")

from glidemq_async.web.pages import drawings, formats
from glidemq_async.web.pages.rendering import argument_rows, payload_view

NOW = datetime(2026, 11, 26, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.08, "80 ms"),
        (4.25, "4.2 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (12_000, "3 h 20 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, text: str) -> None:
    assert formats.duration(seconds) == text


def test_instants_are_ages() -> None:
    assert formats.ago(NOW - timedelta(minutes=4), NOW) == "4 min ago"
    assert formats.ago(NOW + timedelta(hours=2), NOW) == "in 2 h"
    assert formats.ago(NOW, NOW) == "now"
    assert formats.iso(NOW) == "2026-11-26T12:00:00Z"


def test_numbers() -> None:
    assert formats.number(1_234_567) == "1,234,567"
    assert formats.percent(0.125) == "12 %"
    assert formats.rate(0.031) == "0.03"
    assert formats.size(3.4 * 1024**2) == "3.4 MiB"
    assert formats.duration(None) == formats.number(None) == formats.size(None) == formats.DASH


@pytest.mark.parametrize(
    ("backoff", "text"),
    [
        (Backoff.fixed(5), "5.0 s"),
        (
            Backoff.exponential(0.2, max=60, jitter=0.2),
            "200 ms, then 2 times as long after each failure, at most 1 min",
        ),
        (Backoff.custom("polite"), "custom: polite"),
    ],
)
def test_a_backoff_is_a_sentence(backoff: Backoff, text: str) -> None:
    shown = formats.option("backoff", as_document(backoff))
    assert isinstance(shown, str)
    assert shown.startswith(text)
    assert ("varied by up to 20 %" in shown) == bool(backoff.jitter)


def test_options_in_seconds_have_a_unit() -> None:
    assert formats.option("timeout", 90.0) == "1 min 30 s"
    assert formats.option("priority", 90) == 90


def test_a_large_integer_keeps_every_digit() -> None:
    assert argument_rows({"n": 2**63 + 1}) == [("n", "9223372036854775809", False)]


def test_drawings_escape_their_labels() -> None:
    for drawn in (drawings.spark([1, 2], "<b>"), drawings.meter(1, 2, "<b>"), drawings.chart([("out", [1, 2])], "<b>")):
        assert "<b>" not in drawn
        assert "&lt;b&gt;" in drawn


def test_a_long_payload_is_collapsed_and_escaped() -> None:
    assert payload_view("<script>", False) == '<pre class="wrap">&lt;script&gt;</pre>'
    long = payload_view("<script>" * 1000, True)
    assert long.startswith("<details>")
    assert "<script>" not in long


def test_control_characters_of_a_payload_are_shown() -> None:
    assert "\x1b" not in payload_view("\x1b[31mred", False)
