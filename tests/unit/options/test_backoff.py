"""The delays of the built-in strategies, and their stored form."""

import math
import random
from collections.abc import Callable
from typing import cast

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glidemq_async.errors import SerializationError
from glidemq_async.options.backoff import Backoff
from glidemq_async.options.stored_values import backoff_form, read_backoff

delays = st.integers(0, 10_000_000).map(lambda milliseconds: milliseconds / 1000)
fractions = st.floats(0, 1)
maxima = st.none() | delays
backoffs = (
    st.builds(Backoff.fixed, delays, fractions, maxima)
    | st.builds(Backoff.exponential, delays, maxima, fractions, st.floats(1, 100))
    | st.builds(Backoff.custom, st.sampled_from(["slow", "späť"]))
)


def middle() -> float:
    return 0.5


@pytest.mark.smoke
def test_fixed_delays_are_all_the_same() -> None:
    backoff = Backoff.fixed(5)
    assert [backoff.delay(made, middle) for made in (1, 2, 50)] == [5, 5, 5]


def test_exponential_delays_double_up_to_the_maximum() -> None:
    backoff = Backoff.exponential(1, max=10)
    assert [backoff.delay(made, middle) for made in (1, 2, 3, 4, 5, 10**6)] == [1, 2, 4, 8, 10, 10]
    assert Backoff.exponential(1, factor=3).delay(3, middle) == 9


def test_a_maximum_limits_the_first_delay_too() -> None:
    assert Backoff.fixed(5, max=2).delay(1, middle) == 2


def test_exponential_delays_stay_finite_without_a_maximum() -> None:
    assert math.isfinite(Backoff.exponential(1).delay(10**9, middle))
    assert Backoff.exponential(0).delay(10**9, middle) == 0


def test_jitter_spreads_evenly_to_both_sides() -> None:
    backoff = Backoff.fixed(10, jitter=0.2)
    assert backoff.delay(1, lambda: 0.0) == pytest.approx(8)
    assert backoff.delay(1, middle) == pytest.approx(10)
    assert backoff.delay(1, lambda: math.nextafter(1.0, 0.0)) == pytest.approx(12)
    source = random.Random(7)
    waits = [backoff.delay(1, source.random) for _ in range(4000)]
    assert sum(waits) / len(waits) == pytest.approx(10, rel=0.01)
    assert min(waits) < 8.1
    assert max(waits) > 11.9


@given(
    st.builds(Backoff.exponential, delays, delays, fractions, st.floats(1, 1e6)),
    st.integers(1, 10**6),
    st.floats(0, 1, exclude_max=True),
)
def test_no_delay_is_negative_or_above_the_maximum(backoff: Backoff, made: int, chance: float) -> None:
    assert backoff.max is not None
    assert 0 <= backoff.delay(made, lambda: chance) <= backoff.max


def test_only_a_worker_can_call_a_custom_strategy() -> None:
    with pytest.raises(ValueError, match="'mine' is computed by the worker"):
        Backoff.custom("mine").delay(1, middle)


@given(backoffs)
def test_strategies_are_read_back_from_storage(backoff: Backoff) -> None:
    stored = msgpack.unpackb(msgpack.packb(backoff_form(backoff)))
    assert read_backoff(cast("dict[str, str | float]", stored)) == backoff


def test_defaults_are_not_stored() -> None:
    assert backoff_form(Backoff.fixed(2)) == {"k": "f", "d": 2000}
    assert backoff_form(Backoff.exponential(1, max=60, jitter=0.2)) == {"k": "e", "d": 1000, "m": 60000, "j": 0.2}
    assert backoff_form(Backoff.custom("mine")) == {"k": "c", "n": "mine"}


@pytest.mark.parametrize(
    "wire", [{}, {"k": "z"}, {"k": "f"}, {"k": "f", "d": "1"}, {"k": "e", "d": -1}, {"k": "c", "n": 5}]
)
def test_malformed_stored_strategies_are_reported(wire: dict[str, str | float]) -> None:
    with pytest.raises(SerializationError, match="stored backoff"):
        read_backoff(wire)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: Backoff.fixed(-1), ValueError, "backoff delay must not be negative"),
        (lambda: Backoff.fixed(True), TypeError, "backoff delay must be seconds"),
        (
            lambda: Backoff.fixed(1, jitter=1.5),
            ValueError,
            "backoff jitter must be a fraction from 0 to 1, got 1.5",
        ),
        (lambda: Backoff.fixed(1, jitter=math.nan), ValueError, "backoff jitter"),
        (lambda: Backoff.fixed(1, max=-1), ValueError, "backoff max must not be negative"),
        (lambda: Backoff.exponential(1, factor=0.5), ValueError, "backoff factor"),
        (lambda: Backoff.exponential(1, factor=math.inf), ValueError, "backoff factor"),
        (lambda: Backoff.custom(""), ValueError, "backoff strategy name must not be empty"),
    ],
)
def test_bad_values_are_refused_by_name(build: Callable[[], Backoff], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build()
