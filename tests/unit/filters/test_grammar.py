"""The text of filters: what is understood, what is refused, and the shortest form."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glidemq_async import Filter, FilterError
from glidemq_async.filters.grammar import MOST_CHARACTERS, Term, Value, parse
from glidemq_async.filters.values import version_test

UNDERSTOOD = {
    "": "",
    "  state:failed   name:resize ": "state:failed name:resize",
    "State:failed": "state:failed",
    'error:"Timeout\\"Error"': 'error:"Timeout\\"Error"',
    "-state:failed,delayed": "-state:failed,delayed",
    "added:>1h30m ended:<=2026-11-22T10:00:00+01:00": "added:>1h30m ended:<=2026-11-22T10:00:00+01:00",
    'data."a.b".c:1': 'data."a.b".c:1',
    "-word": "-word",
    '"two words"': '"two words"',
    'key:""': 'key:""',
    "data.#1:x": "data.#1:x",
}
REFUSED = {
    "stat:failed": (1, "did you mean 'state'"),
    "colour:red": (1, "the fields are state, id"),
    "state:fail": (1, "state is one of active"),
    "cause:because": (1, "cause is one of"),
    "name:>a": (1, "cannot be compared with >"),
    "priority:high": (1, "is a number, not 'high'"),
    "added:1h": (1, "needs > or <, for example added:>1h"),
    "added:>soon": (1, "compared with a duration"),
    "added:>2026-13-45": (1, "compared with a duration"),
    "added:2026-11-22T10:00": (1, "only a day can be equal"),
    "added:>1e9w": (1, "compared with a duration"),
    "added:>9999999999w": (1, "1,000 years"),
    "id.x:1": (1, "has no parts"),
    "name:": (6, "a value is missing"),
    "x name:,": (8, "a value is missing"),
    'name:"open': (6, "is not closed"),
    'name:a"b"': (7, "a space is missing"),
    "priority:>1,2": (11, "takes one value"),
    "x" * (MOST_CHARACTERS + 1): (1, "at most 4,000"),
}


@pytest.mark.parametrize("text", UNDERSTOOD)
def test_a_filter_is_written_in_its_shortest_form(text: str) -> None:
    found = Filter(text)
    assert str(found) == UNDERSTOOD[text]
    assert found == Filter(str(found))
    assert hash(found) == hash(Filter(str(found)))
    assert repr(found) == f"Filter({UNDERSTOOD[text]!r})"


@pytest.mark.parametrize("text", REFUSED)
def test_a_mistake_is_shown_with_its_place(text: str) -> None:
    position, problem = REFUSED[text]
    with pytest.raises(FilterError) as caught:
        Filter(text)
    assert caught.value.position == position
    assert problem in str(caught.value)
    assert f"at character {position}" in str(caught.value)


def test_the_error_survives_pickling() -> None:
    error = FilterError("a value is missing", 7)
    for one in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (str(one), one.problem, one.position) == (str(error), "a value is missing", 7)


def test_only_a_text_is_a_filter() -> None:
    with pytest.raises(TypeError, match="a filter is a text"):
        Filter(7)  # type: ignore[arg-type]


def test_terms_tell_their_place() -> None:
    assert Filter("a -data.x:>=1").terms == (
        Term("", (), "=", (Value("a"),), False, 1),
        Term("data", ("x",), ">=", (Value("1"),), True, 3),
    )


@given(st.lists(st.tuples(st.booleans(), st.lists(st.text(min_size=1), min_size=1, max_size=3), st.text()), max_size=4))
def test_quoted_texts_survive(parts: list[tuple[bool, list[str], str]]) -> None:
    terms = tuple(
        Term("data", tuple(path), "=", (Value(text, quoted=True),), negated, 1) for negated, path, text in parts
    )
    found = Filter(" ".join(map(str, terms))).terms
    assert [term._replace(position=1) for term in found] == list(terms)


@given(st.text(max_size=60))
def test_no_text_breaks_the_parser(text: str) -> None:
    position = 0
    try:
        found = Filter(text)
    except FilterError as error:
        position = error.position
    else:
        assert Filter(str(found)) == found
    assert position <= len(text) + 1


@pytest.mark.parametrize(
    ("text", "matching", "others"),
    [
        ("version:<2026.11", ("2026.9", "2026.11rc1", "2026", "1.0"), ("2026.11", "2026.11.0", "2026.11.1", "2027")),
        ("version:>=2.0", ("2.0", "2", "2.0.1", "10", "v2.0"), ("2.0rc1", "1.9.9", "")),
        ("version:>1.2-beta", ("1.2-rc1", "1.2", "1.10"), ("1.2-beta", "1.2-alpha", "1.1")),
        ("version:<=1", ("1.0", "1", "0.9"), ("1.0.1",)),
        ("version:1.2*", ("1.2", "1.21"), ("1.3",)),
    ],
)
def test_versions_are_ordered_by_their_numbers(text: str, matching: tuple[str, ...], others: tuple[str, ...]) -> None:
    [term] = parse(text)
    test = version_test(term)
    assert [version for version in (*matching, *others) if test(version)] == list(matching)
