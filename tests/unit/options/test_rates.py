"""Rates: bounds are checked on construction and stored in thousandths and milliseconds."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from glidemq_async import RateLimit, TokenBucket
from glidemq_async.queues.rates import stored_limit


def test_a_window_is_normalized() -> None:
    limit = RateLimit(5, 1.5)
    assert (limit.max, limit.duration) == (5, 1.5)
    assert stored_limit(limit) == "5 1500"
    assert RateLimit(max=5, duration=timedelta(seconds=1, milliseconds=500)) == limit
    assert pickle.loads(pickle.dumps(limit)) == limit
    assert len({limit, RateLimit(5, 1.5), RateLimit(5, 2)}) == 2


@pytest.mark.parametrize(
    ("most", "duration", "error", "words"),
    [
        (0, 1, ValueError, "max.*0"),
        (-1, 1, ValueError, "max"),
        (1.5, 1, TypeError, "max"),
        (True, 1, TypeError, "max"),
        ("5", 1, TypeError, "max"),
        (2**31, 1, ValueError, "max"),
        (5, 0, ValueError, "duration.*0"),
        (5, -1, ValueError, "duration"),
        (5, float("nan"), ValueError, "duration"),
        (5, float("inf"), ValueError, "duration"),
        (5, "1", TypeError, "duration"),
        (5, None, TypeError, "duration"),
        (5, timedelta(0), ValueError, "duration"),
    ],
)
def test_bad_windows_are_refused(most: Any, duration: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        RateLimit(most, duration)


def test_a_bucket_is_normalized() -> None:
    bucket = TokenBucket(10, 0.25)
    assert (bucket.capacity, bucket.refill_rate) == (10, 0.25)
    assert stored_limit(bucket) == "10000 250"
    assert stored_limit(TokenBucket(0.001, 0.001)) == "1 1"
    assert stored_limit(TokenBucket(10**12, 10**12)) == f"{10**15} {10**15}"
    assert TokenBucket(capacity=10, refill_rate=0.25) == bucket
    assert pickle.loads(pickle.dumps(bucket)) == bucket


@pytest.mark.parametrize("name", ["capacity", "refill_rate"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        (0.0001, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        (10**13, ValueError),
        (True, TypeError),
        ("1", TypeError),
        (None, TypeError),
    ],
)
def test_bad_buckets_are_refused(name: str, value: Any, error: type[Exception]) -> None:
    given: dict[str, Any] = {"capacity": 1, "refill_rate": 1, name: value}
    with pytest.raises(error, match=name):
        TokenBucket(**given)
