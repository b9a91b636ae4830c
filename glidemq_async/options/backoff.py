"""How long a failed job waits before its next try: the strategies and their stored form.

Whether there is a next try is decided by the worker, which also holds the strategies registered by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, Self

from glidemq_async.durations import MAX_MS, to_ms
from glidemq_async.errors import SerializationError
from glidemq_async.stored.names import check_id

__all__ = ["Backoff", "BackoffWire"]

#: The stored form: a kind, and only what differs from the defaults; durations in milliseconds.
BackoffWire = dict[str, str | int | float]

_LONGEST: Final = MAX_MS // 1000
_KINDS: Final[Mapping[str, Literal["fixed", "exponential", "custom"]]] = {
    "f": "fixed",
    "e": "exponential",
    "c": "custom",
}


@dataclass(frozen=True, slots=True)
class Backoff:
    """The wait between two tries of a job; build one with `fixed`, `exponential` or `custom`.

    Durations are seconds. `jitter` is a fraction of the wait, 0 to 1, by which it is spread evenly to
    both sides; no wait is ever above `max`.
    """

    kind: Literal["fixed", "exponential", "custom"]
    initial: float = 0.0
    max: float | None = None
    jitter: float = 0.0
    factor: float = 2.0
    name: str = ""

    @classmethod
    def fixed(
        cls,
        delay: float | timedelta,
        jitter: float = 0.0,
        max: float | timedelta | None = None,  # noqa: A002
    ) -> Self:
        """Wait the same `delay` seconds before every try. Raises ValueError or TypeError for bad values."""
        return cls("fixed", _seconds("backoff delay", delay), _optional_max(max), _fraction(jitter))

    @classmethod
    def exponential(
        cls,
        delay: float | timedelta,
        max: float | timedelta | None = None,  # noqa: A002
        jitter: float = 0.0,
        factor: float = 2.0,
    ) -> Self:
        """Wait `delay` seconds after the first failure and `factor` times longer after each further one.

        Raises ValueError or TypeError for bad values; `factor` is at least 1.
        """
        initial, cap = _seconds("backoff delay", delay), _optional_max(max)
        return cls("exponential", initial, cap, _fraction(jitter), _number("backoff factor", factor, 1.0))

    @classmethod
    def custom(cls, name: str) -> Self:
        """Ask the strategy that the worker registered under `name` in its `backoff_strategies`."""
        return cls("custom", name=check_id("backoff strategy name", name))

    def delay(self, attempts_made: int, random: Callable[[], float]) -> float:
        """Return the wait in seconds after `attempts_made` runs (1 after the first).

        `random` returns a number from 0 up to 1, as random.random does. Raises ValueError for a custom
        strategy, which only the worker that registered it can ask.
        """
        if self.kind == "custom":
            raise ValueError(f"backoff strategy {self.name!r} is registered on a worker: only a worker can ask it")
        wait = self.initial
        if self.kind == "exponential" and wait:
            wait = _grown(wait, self.factor, attempts_made - 1)
        cap = _LONGEST if self.max is None else self.max
        # Capped before the spread too: else, far beyond `max`, every job would wait exactly that long.
        wait = min(wait, cap)
        if self.jitter:
            wait = min(wait * (1.0 + self.jitter * (2.0 * random() - 1.0)), cap)
        return wait

    def to_wire(self) -> BackoffWire:
        """Return the stored form, a small dict for msgpack."""
        if self.kind == "custom":
            return {"k": "c", "n": self.name}
        wire: BackoffWire = {"k": self.kind[0], "d": round(self.initial * 1000)}
        if self.max is not None:
            wire["m"] = round(self.max * 1000)
        if self.jitter:
            wire["j"] = self.jitter
        if self.kind == "exponential" and self.factor != 2.0:
            wire["x"] = self.factor
        return wire

    @classmethod
    def from_wire(cls, wire: Mapping[str, str | float]) -> Self:
        """Return the strategy that `to_wire` stored; raises SerializationError for anything else."""
        try:
            kind = _KINDS[str(wire["k"])]
            if kind == "custom":
                return cls.custom(_text(wire["n"]))
            initial, cap = _stored_seconds(wire["d"]), wire.get("m")
            longest = None if cap is None else _stored_seconds(cap)
            jitter, factor = _float(wire.get("j", 0.0)), _float(wire.get("x", 2.0))
            if kind == "fixed":
                return cls.fixed(initial, jitter, longest)
            return cls.exponential(initial, longest, jitter, factor)
        except (KeyError, TypeError, ValueError) as error:
            raise SerializationError(f"not a stored backoff: {wire!r} ({error})") from error


def _grown(initial: float, factor: float, times: int) -> float:
    try:
        return initial * factor ** max(times, 0)
    except OverflowError:
        return math.inf


def _seconds(option: str, value: float | timedelta) -> float:
    return to_ms(option, value) / 1000


def _optional_max(value: float | timedelta | None) -> float | None:
    return None if value is None else _seconds("backoff max", value)


def _fraction(value: float) -> float:
    if _number("backoff jitter", value, 0.0) > 1.0:
        raise ValueError(f"backoff jitter must be a fraction from 0 to 1, got {value!r}")
    return float(value)


def _number(option: str, value: object, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{option} must be a number, not {value!r}")
    if not math.isfinite(value) or value < least:
        raise ValueError(f"{option} must be finite and at least {least:g}, got {value!r}")
    return float(value)


def _stored_seconds(value: str | float) -> float:
    return _float(value) / 1000


def _float(value: str | float) -> float:
    if isinstance(value, str):
        raise TypeError(f"expected a number, found {value!r}")
    return value


def _text(value: str | float) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a name, found {value!r}")
    return value
