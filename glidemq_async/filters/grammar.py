"""The grammar of filters: from a text to terms, and from terms to a text."""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple, TypeAlias, cast

from glidemq_async.errors import FilterError

# filter   = { [ "-" ] ( term | word ) }
# term     = field { "." segment } ":" [ ">" | ">=" | "<" | "<=" ] value { "," value }
# word     = value
# value    = quoted | characters without spaces, quotation marks and commas
# segment  = quoted | characters without spaces, quotation marks, commas, dots and colons
# quoted   = '"' characters, with \" and \\ for these two '"'
Comparison: TypeAlias = Literal["=", ">", ">=", "<", "<="]

MOST_CHARACTERS: Final = 4_000
"""Maximum length of a filter."""

_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_HEAD: Final = re.compile(rf'([A-Za-z_]+)((?:\.(?:{_QUOTED}|[^\s":.,]+))*):(>=|<=|>|<)?', re.DOTALL)
_VALUE: Final = re.compile(rf'({_QUOTED})|([^\s",]+)', re.DOTALL)
_SEGMENT: Final = re.compile(rf'\.({_QUOTED}|[^\s":.,]+)', re.DOTALL)
_SPACE: Final = re.compile(r"\s*")
_PLAIN: Final = re.compile(r'[^\s":,<>=*\\-][^\s":,*]*')
"""A value that means the same with and without quotes."""


class Value(NamedTuple):
    """A value of a term. A quoted one has no wildcards and is never a number."""

    text: str
    quoted: bool = False

    def __str__(self) -> str:
        return quote(self.text) if self.quoted else self.text


class Term(NamedTuple):
    """A condition on a field of a job. The field of a bare word is "". `position` is its place in the text, from 1."""

    field: str
    path: tuple[str, ...]
    comparison: Comparison
    values: tuple[Value, ...]
    negated: bool
    position: int

    def __str__(self) -> str:
        path = "".join(f".{each if _PLAIN.fullmatch(each) and '.' not in each else quote(each)}" for each in self.path)
        head = f"{self.field}{path}:{self.comparison.removeprefix('=')}" if self.field else ""
        return f"{'-' if self.negated else ''}{head}{','.join(map(str, self.values))}"


def quote(text: str) -> str:
    """Return a text as a quoted value."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def parse(text: str) -> tuple[Term, ...]:
    """Return the terms of a filter. Raises FilterError with the position of the mistake."""
    if len(text) > MOST_CHARACTERS:
        raise FilterError(f"the filter has {len(text):,} characters; at most {MOST_CHARACTERS:,} are allowed", 1)
    terms: list[Term] = []
    at = _skip_space(text, 0)
    while at < len(text):
        term, at = _term(text, at)
        terms.append(term)
        following = _skip_space(text, at)
        if following == at < len(text):
            raise FilterError(f"a space is missing before {text[at : at + 20]!r}", at + 1)
        at = following
    return tuple(terms)


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _term(text: str, start: int) -> tuple[Term, int]:
    negated = text[start] == "-"
    at = start + negated
    head = _HEAD.match(text, at)
    if head is None:
        value, end = _value(text, at)
        return Term("", (), "=", (value,), negated, start + 1), end
    path = tuple(_unquoted(each) for each in _SEGMENT.findall(head[2]))
    comparison = cast("Comparison", head[3] or "=")
    values, end = _values(text, head.end())
    if comparison != "=" and len(values) > 1:
        raise FilterError(f"{comparison} takes one value; {len(values)} were given", head.end() + 1)
    return Term(head[1].lower(), path, comparison, tuple(values), negated, start + 1), end


def _values(text: str, at: int) -> tuple[list[Value], int]:
    values: list[Value] = []
    while True:
        value, at = _value(text, at)
        values.append(value)
        if text[at : at + 1] != ",":
            return values, at
        at += 1


def _value(text: str, at: int) -> tuple[Value, int]:
    found = _VALUE.match(text, at)
    if found is None:
        if text[at : at + 1] == '"':
            raise FilterError("the quotation mark is not closed", at + 1)
        raise FilterError('a value is missing; write "" for an empty text', at + 1)
    return (Value(_unquoted(found[1]), quoted=True) if found[1] else Value(found[2])), found.end()


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL) if text.startswith('"') else text
