"""Functions stay short: the length at the 90th percentile, and the longest one. Docstrings do not count."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
# glidemq_async/functions and glidemq_async/executors are links to the last two.
SOURCES = ("glidemq_async", "functions", "executors")
LINKS = (ROOT / "glidemq_async/functions", ROOT / "glidemq_async/executors")


class Function(NamedTuple):
    """The lines of a function without its docstring, and where it begins."""

    lines: int
    location: str


def test_nine_of_ten_functions_have_at_most_15_lines() -> None:
    """Shorten functions when this fails: give a part of one a name that a reader expects."""
    functions = sorted(_functions())
    longer = [function for function in functions if function.lines > 15]
    assert functions[int(len(functions) * 0.9)].lines <= 15, f"{len(longer)} of {len(functions)} are longer"


def test_no_function_has_more_than_60_lines() -> None:
    """A longer function contains several steps that can have names."""
    assert [function for function in _functions() if function.lines > 60] == []


@cache
def _functions() -> tuple[Function, ...]:
    return tuple(_find_functions())


def _find_functions() -> Iterator[Function]:
    paths = [path for source in SOURCES for path in (ROOT / source).rglob("*.py")]
    for path in paths:
        if not any(path.is_relative_to(link) for link in LINKS):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield Function(_lines(node), f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    docstring = 0
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        docstring = _span(first)
    return _span(function) - docstring


def _span(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1
