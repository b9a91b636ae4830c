"""Comparisons of the values of terms with texts, numbers, times and payloads."""

from __future__ import annotations

import fnmatch
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, TypeAlias, cast

from glidemq_async.durations import LONGEST_SECONDS, parse_duration
from glidemq_async.errors import FilterError
from glidemq_async.filters.grammar import Comparison, Term, Value

TextTest: TypeAlias = Callable[[str], bool]
NumberTest: TypeAlias = Callable[[float], bool]
TimeTest: TypeAlias = Callable[[datetime, datetime], bool]
"""Compares an instant of a job with the present, the second argument."""
PayloadTest: TypeAlias = Callable[[object], bool]

_COMPARE: Final[Mapping[Comparison, Callable[[float, float], bool]]] = {
    "=": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_Version: TypeAlias = list[tuple[int, int, str]]
_COMPARE_VERSIONS: Final[Mapping[Comparison, Callable[[_Version, _Version], bool]]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_WORDS: Final = {"true": True, "false": False, "null": None}


def text_test(term: Term) -> TextTest:
    """Compare a text: equal, or with the wildcard `*`. One of several values is enough."""
    _refuse_order(term)
    tests = [_one_text(value) for value in term.values]
    return lambda text: any(test(text) for test in tests)


def _one_text(value: Value) -> TextTest:
    wanted = value.text
    if value.quoted or "*" not in wanted:
        return lambda text: text == wanted
    # Only `*` is a wildcard. Texts such as "a[1]" and "what?" must not become patterns by surprise.
    escaped = "*".join(re.sub(r"([\[?])", r"[\1]", part) for part in wanted.split("*"))
    matches = re.compile(fnmatch.translate(escaped)).match
    return lambda text: matches(text) is not None


def choice_test(term: Term, choices: Sequence[str]) -> TextTest:
    """Compare a text that has a few possible values. Raises FilterError for any other value."""
    _refuse_order(term)
    for value in term.values:
        if value.text not in choices:
            raise FilterError(f"{term.field} is one of {', '.join(sorted(choices))}, not {value.text!r}", term.position)
    wanted = {value.text for value in term.values}
    return lambda text: text in wanted


def part_test(term: Term) -> TextTest:
    """Find a part in a text, without regard to case."""
    _refuse_order(term)
    parts = [value.text.casefold() for value in term.values]
    return lambda text: any(part in text.casefold() for part in parts)


def number_test(term: Term) -> NumberTest:
    """Compare a number."""
    wanted = [_number_of(term, value) for value in term.values]
    compare = _COMPARE[term.comparison]
    return lambda number: any(compare(number, each) for each in wanted)


def _number_of(term: Term, value: Value) -> float:
    number = _as_number(value.text)
    if number is None:
        raise FilterError(f"{term.field} is a number, not {value.text!r}", term.position)
    return number


def _as_number(text: str) -> float | None:
    try:
        return float(text) if re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", text, re.IGNORECASE) else None
    except OverflowError:
        return None


def version_test(term: Term) -> TextTest:
    """Compare a version: equal, with the wildcard `*`, or before or after another version.

    Numbers in versions are compared as numbers, so 2026.9 is before 2026.11. A text after a number, as in 2.0rc1, comes
    before the number alone.
    """
    if term.comparison == "=":
        return text_test(term)
    wanted, compare = _version_order(term.values[0].text), _COMPARE_VERSIONS[term.comparison]
    return lambda version: compare(_version_order(version), wanted)


def _version_order(version: str) -> _Version:
    parts: _Version = []
    found = re.findall(r"(\d+)|([^\W\d_]+)", version.casefold().removeprefix("v"))
    for number, text in [*cast("list[tuple[str, str]]", found), ("", "")]:
        # The end comes after a text and before a number. A zero before either of them says nothing: 2.0rc1 is 2rc1.
        while not number and parts and parts[-1] == (1, 0, ""):
            parts.pop()
        parts.append((1, int(number), "") if number else (-1 if text else 0, 0, text))
    return parts


def time_test(term: Term, *, ahead: bool = False) -> TimeTest:
    """Compare an instant with a time, a day, or a distance from the present.

    A distance is the age of an instant that lies in the past, and with `ahead` the time left until the instant.
    """
    tests = [_one_time(term, value.text, ahead) for value in term.values]
    return lambda instant, now: any(test(instant, now) for test in tests)


def _one_time(term: Term, text: str, ahead: bool) -> TimeTest:
    compare = _COMPARE[term.comparison]
    wanted = parse_duration(text)
    if wanted is not None:
        if term.comparison == "=":
            raise FilterError(f"{term.field}:{text} needs > or <, for example {term.field}:>{text}", term.position)
        if wanted > LONGEST_SECONDS:
            raise FilterError(f"{text} is more than 1,000 years", term.position)
        sign = 1 if ahead else -1
        return lambda instant, now: compare(sign * (instant - now).total_seconds(), wanted)
    start, end = _instants(term, text)
    if term.comparison == "=":
        if end == start:
            raise FilterError(f"{term.field}:{text} needs > or <; only a day can be equal", term.position)
        return lambda instant, _now: start <= instant < end
    # "after a day" begins with the next day.
    bound = (end if term.comparison in (">", "<=") else start).timestamp()
    inclusive = start != end and term.comparison in (">", "<=")
    order = {">": operator.ge, "<=": operator.lt}[term.comparison] if inclusive else compare
    return lambda instant, _now: order(instant.timestamp(), bound)


def _instants(term: Term, text: str) -> tuple[datetime, datetime]:
    """Return the start and the end of a day, or a time twice."""
    try:
        if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            start = datetime.combine(date.fromisoformat(text), time(), UTC)
            return start, start + timedelta(days=1)
        instant = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise FilterError(
            f"{term.field} is compared with a duration (90s, 5m, 1h30m, 2d), a day (2026-11-22) "
            f"or a time (2026-11-22T10:30), not {text!r}",
            term.position,
        ) from None
    instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return instant, instant


def payload_test(term: Term) -> PayloadTest:
    """Compare a value inside of a payload. A list matches if one of its items does."""
    if term.comparison == "=":
        tests = [_one_payload(value) for value in term.values]
        return lambda found: any(test(found) for test in tests)
    wanted, compare = _number_of(term, term.values[0]), _COMPARE[term.comparison]
    return lambda found: any(_is_number(item) and compare(cast("float", item), wanted) for item in _items(found))


def _one_payload(value: Value) -> PayloadTest:
    test = _one_text(value)
    if value.quoted:
        return lambda found: any(isinstance(item, str) and test(item) for item in _items(found))
    number = _as_number(value.text)

    def matches(item: object) -> bool:
        if isinstance(item, str):
            return test(item)
        if item is None or isinstance(item, bool):
            return value.text in _WORDS and _WORDS[value.text] is item
        return number is not None and _is_number(item) and item == number

    return lambda found: any(map(matches, _items(found)))


def _is_number(item: object) -> bool:
    return isinstance(item, int | float) and not isinstance(item, bool)


def _items(found: object) -> Sequence[object]:
    return cast("list[object] | tuple[object, ...]", found) if isinstance(found, list | tuple) else (found,)


def at_path(payload: object, path: Sequence[str]) -> Iterator[object]:
    """Iterate over the values at a path: the items of mappings by key, and of lists by number or all of them."""
    if not path:
        yield payload
        return
    first, rest = path[0], path[1:]
    if isinstance(payload, Mapping):
        for key, value in cast("Mapping[object, object]", payload).items():
            if str(key) == first:
                yield from at_path(value, rest)
    elif isinstance(payload, list | tuple):
        items = cast("Sequence[object]", payload)
        if first.isdecimal() and int(first) < len(items):
            yield from at_path(items[int(first)], rest)
        elif not first.isdecimal():
            for item in items:
                yield from at_path(item, path)


def _refuse_order(term: Term) -> None:
    if term.comparison != "=":
        raise FilterError(f"{term.field} is a text, which cannot be compared with {term.comparison}", term.position)
