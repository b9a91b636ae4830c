"""The arguments of Deduplication."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from glidemq_async import Deduplication
from glidemq_async.options.deduplication import ttl_ms
from glidemq_async.options.stored_values import deduplication_form


def test_arguments_are_stored() -> None:
    plain = Deduplication("d")
    assert (plain.id, plain.ttl, plain.mode, ttl_ms(plain)) == ("d", None, "simple", None)
    assert deduplication_form(plain) == {"id": "d", "mode": "simple"}
    timed = Deduplication("d", timedelta(minutes=1), "throttle")
    assert (timed.ttl, ttl_ms(timed)) == (60, 60_000)
    assert deduplication_form(timed) == {"id": "d", "mode": "throttle", "ttl": 60_000}
    assert ttl_ms(Deduplication("any text: {} *", ttl=0.5)) == 500
    assert pickle.loads(pickle.dumps(timed)) == timed
    assert hash(timed) == hash(Deduplication("d", 60, "throttle"))


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"id": ""}, ValueError, "deduplication id"),
        ({"id": 7}, TypeError, "deduplication id"),
        ({"id": "a\nb"}, ValueError, "control"),
        ({"id": "x" * 513}, ValueError, "512"),
        ({"id": "d", "ttl": 0}, ValueError, "ttl"),
        ({"id": "d", "ttl": -1}, ValueError, "ttl"),
        ({"id": "d", "ttl": "60"}, TypeError, "ttl"),
        ({"id": "d", "ttl": float("nan")}, ValueError, "ttl"),
        ({"id": "d", "mode": "throtle"}, ValueError, "simple, throttle, debounce, keep_last.*throtle"),
        ({"id": "d", "mode": None}, ValueError, "mode"),
        ({"id": "d", "mode": "keep_last", "ttl": 5}, ValueError, "'keep_last' does not accept a ttl.*ttl=5"),
        ({"id": "d", "mode": "throttle"}, ValueError, "'throttle' needs ttl="),
    ],
)
def test_invalid_arguments_are_refused(given: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Deduplication(**given)
