"""The conditions of alert rules: their grammar, and the measures that they compare."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from math import inf
from typing import Final, Literal, TypeAlias

from glidemq_async.durations import LONGEST_SECONDS, parse_duration
from glidemq_async.ops.alerts.episodes import AlertVerdict
from glidemq_async.ops.queue_rows import LATE_SECONDS, QueueSummary
from glidemq_async.ops.verdicts import FEW_FAILURES, spoken

Kind: TypeAlias = Literal["duration", "share", "count", "size", "flag"]
DEFAULT_HOLD: Final = 60.0
"""Seconds for which a condition must hold if its text has no `for`."""
NEW_GROUP: Final = "new_failure_group"
NEW_GROUP_SECONDS: Final = 3_600.0
"""Seconds after its first failure during which a failure group is new."""
MEMORY: Final = "memory"

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_CONDITION: Final = re.compile(
    r"\s*(?P<measure>[A-Za-z_]+(?:\s+(?!for\b)[A-Za-z_]+)*)"
    r"(?:\s*(?P<comparison>>=|<=|>|<)\s*(?P<limit>[^\s<>=]+))?"
    r"(?:\s+for\s+(?P<hold>\S+))?\s*"
)
_SIZES: Final = {"b": 1, "kb": 1_000, "mb": 1_000**2, "gb": 1_000**3, "kib": 1_024, "mib": 1_024**2, "gib": 1_024**3}
_NUMBER: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z%]*)")


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure that a condition compares.

    `read` returns it for a queue. `text` says in words that the condition is true. `singular` replaces it for the
    figure 1. `default` is the comparison of a condition without one. `verdict` is the verdict on the queues while an
    episode is open.
    """

    kind: Kind
    verdict: AlertVerdict
    text: str
    read: Callable[[QueueSummary], float] | None = None
    default: str = ""
    singular: str = ""


def _age(queue: QueueSummary) -> float:
    return (queue.oldest_waiting_seconds or 0.0) if queue.ready else 0.0


def _backlog(queue: QueueSummary) -> float:
    return inf if queue.backlog_seconds is None else queue.backlog_seconds


def _failure_share(queue: QueueSummary) -> float:
    return queue.failure_ratio if queue.failed_last_hour >= FEW_FAILURES else 0.0


def _failures(queue: QueueSummary) -> float:
    return queue.failed_last_hour


def _waiting(queue: QueueSummary) -> float:
    return queue.ready


def _workers(queue: QueueSummary) -> float:
    return queue.workers


def _lateness(queue: QueueSummary) -> float:
    return queue.late_schedule_seconds or 0.0


def _no_worker(queue: QueueSummary) -> float:
    return float(queue.ready > 0 and queue.workers == 0)


MEASURES: Final[Mapping[str, Measure]] = {
    "oldest_age": Measure("duration", "behind", "the oldest job of {queue} has waited {figure}", _age),
    "backlog": Measure("duration", "behind", "the backlog of {queue} ends in {figure}", _backlog),
    "waiting": Measure("count", "behind", "{figure} jobs of {queue} wait", _waiting, singular="1 job of {queue} waits"),
    "failure_share": Measure(
        "share", "failing", "{figure} of the jobs of {queue} failed in the last hour", _failure_share
    ),
    "failures": Measure(
        "count",
        "failing",
        "{figure} jobs of {queue} failed in the last hour",
        _failures,
        singular="1 job of {queue} failed in the last hour",
    ),
    NEW_GROUP: Measure("flag", "failing", "{queue} has a new failure: {figure}"),
    "no_worker": Measure("flag", "stopped", "jobs of {queue} wait and it has no worker", _no_worker),
    "workers": Measure("count", "stopped", "{queue} has {figure} workers", _workers, singular="{queue} has 1 worker"),
    "schedule_late": Measure(
        "duration", "behind", "a schedule of {queue} is {figure} late", _lateness, f">{LATE_SECONDS:g}s"
    ),
    MEMORY: Measure("share", "behind", "the server uses {figure} of its memory"),
}
"""The measures by name."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition: a measure, a comparison with a limit, and the seconds for which it must hold.

    `kind` is "size" for a condition of the memory in bytes, otherwise the kind of the measure.
    """

    measure: str
    comparison: str
    limit: float
    hold: float
    kind: Kind

    def __str__(self) -> str:
        compared = f" {self.comparison} {figure_text(self.limit, self.kind)}" if self.comparison else ""
        held = "" if self.measure == NEW_GROUP else f" for {duration_text(self.hold)}"
        return f"{self.measure}{compared}{held}"

    def is_true(self, figure: float) -> bool:
        """Return whether the condition is true for a figure."""
        return _COMPARE[self.comparison](figure, self.limit) if self.comparison else figure > 0

    def describe(self, queue: str, figure: float | str) -> str:
        """Return in words that the condition is true."""
        measure = MEASURES[self.measure]
        text = "the server uses {figure} of memory" if self.kind == "size" else measure.text
        if figure == 1 and measure.singular:
            text = measure.singular
        if figure == inf:
            text = "jobs of {queue} wait and none ends"
        return text.format(queue=queue, figure=figure if isinstance(figure, str) else spoken_figure(figure, self.kind))


def parse_condition(text: str) -> Condition:
    """Return a condition such as "oldest_age > 60s for 5m". Raises ValueError, which suggests the nearest measure."""
    found = _CONDITION.fullmatch(text)
    if found is None:
        raise ValueError(
            f"the condition {text[:80]!r} cannot be read; write for example 'oldest_age > 60s for 5m' or 'no_worker'"
        )
    name = "_".join(found["measure"].lower().split())
    measure = MEASURES.get(name)
    if measure is None:
        raise ValueError(f"there is no measure {name!r}: {_nearest(name)}")
    comparison, limit, kind = _compared(name, measure, found["comparison"] or "", found["limit"] or "")
    return Condition(name, comparison, limit, _hold(name, found["hold"]), kind)


def _nearest(name: str) -> str:
    close = get_close_matches(name, MEASURES, 1, 0.5)
    return f"did you mean {close[0]!r}?" if close else f"the measures are {', '.join(MEASURES)}"


def _compared(name: str, measure: Measure, comparison: str, limit: str) -> tuple[str, float, Kind]:
    if not comparison and measure.default:
        comparison, limit = measure.default[0], measure.default[1:]
    if measure.kind == "flag":
        if comparison:
            raise ValueError(f"{name} is true or false and has no limit; write {name!r} alone")
        return "", 0.0, "flag"
    if not comparison:
        raise ValueError(f"{name} needs a limit, for example '{name} > {_EXAMPLES[measure.kind]}'")
    if name == MEMORY and not limit.endswith("%"):
        return comparison, _size(limit), "size"
    return comparison, _READERS[measure.kind](name, limit), measure.kind


def _hold(name: str, text: str | None) -> float:
    if name == NEW_GROUP:
        if text is not None:
            raise ValueError(f"{NEW_GROUP} happens at one instant; remove 'for {text}'")
        return 0.0
    return DEFAULT_HOLD if text is None else _duration(f"for {text}", text)


def _duration(what: str, text: str) -> float:
    seconds = parse_duration(text)
    if seconds is None or seconds > LONGEST_SECONDS:
        raise ValueError(f"{what}: {text!r} is no duration; write for example 90s, 5m or 2h")
    return seconds


def _share(name: str, text: str) -> float:
    found = _NUMBER.fullmatch(text)
    if found is None or found[2] not in {"%", ""}:
        raise ValueError(f"{name}: {text!r} is no share; write for example 10%")
    share = float(found[1]) / (100 if found[2] else 1)
    if share > 1:
        raise ValueError(f"{name}: {text!r} is more than the whole; write for example 10%")
    return share


def _count(name: str, text: str) -> float:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{name}: {text!r} is no whole number")
    return float(text)


def _size(text: str) -> float:
    found = _NUMBER.fullmatch(text)
    if found is None or found[2].lower() not in _SIZES:
        raise ValueError(f"{MEMORY}: {text!r} is no share and no size; write for example 80% or 2GB")
    return float(found[1]) * _SIZES[found[2].lower()]


_READERS: Final[Mapping[str, Callable[[str, str], float]]] = {"duration": _duration, "share": _share, "count": _count}
_EXAMPLES: Final[Mapping[str, str]] = {"duration": "60s", "share": "10%", "count": "100"}


def duration_text(seconds: float) -> str:
    """Return a duration as conditions write it, such as "5m"."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds and seconds % size == 0:
            return f"{_short(seconds / size)}{unit}"
    return f"{_short(seconds)}s"


def figure_text(figure: float, kind: Kind) -> str:
    """Return a figure as conditions write it."""
    if kind == "duration":
        return duration_text(figure)
    if kind == "size":
        return f"{_short(figure / 1_000_000)}MB"
    return f"{_short(figure * 100)}%" if kind == "share" else _short(figure)


def _short(figure: float) -> str:
    return f"{figure:.6f}".rstrip("0").rstrip(".")


def spoken_figure(figure: float, kind: Kind) -> str:
    """Return a figure for people."""
    if kind == "duration":
        return spoken(figure)
    if kind == "size":
        return f"{figure / 1_000_000:,.0f} MB"
    return f"{figure:.0%}" if kind == "share" else f"{figure:,.0f}"
