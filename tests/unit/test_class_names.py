"""No two classes of the library share a name, so a name in a traceback or a search leads to one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from glidemq_async import errors
from glidemq_async.functions import outcomes

ROOT = Path(__file__).parents[2]
FOLDERS = ("glidemq_async", "functions", "executors", "pyspark_glidemq", "benchmarks", "tests/support")

# An outcome of a run has the name of the exception with which a handler asks for it.
SHARED_NAMES = {"RateLimited", "Suspended"}


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            inside = path.relative_to(ROOT).parts
            # These two folders of the package are links to the folders of the same name at the top.
            if inside[:2] not in (("glidemq_async", "functions"), ("glidemq_async", "executors")):
                yield path


def classes(node: ast.AST) -> Iterator[ast.ClassDef]:
    """Return the classes of a module without those inside functions, which no other code can name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(child, ast.ClassDef):
            yield child
        yield from classes(child)


@pytest.fixture(scope="module")
def definitions() -> dict[str, list[str]]:
    """Return where each class is defined."""
    found = defaultdict[str, list[str]](list)
    for path in sources():
        for one in classes(ast.parse(path.read_text())):
            found[one.name].append(f"{path.relative_to(ROOT)}:{one.lineno}")
    return found


def test_no_two_classes_share_a_name(definitions: dict[str, list[str]]) -> None:
    assert len(definitions) > 300
    assert {name: where for name, where in definitions.items() if len(where) > 1 and name not in SHARED_NAMES} == {}


def test_a_shared_name_is_the_outcome_of_an_exception(definitions: dict[str, list[str]]) -> None:
    for name in SHARED_NAMES:
        assert len(definitions[name]) == 2
        assert issubclass(getattr(errors, name), Exception)
        assert isinstance(getattr(outcomes, name), type)
