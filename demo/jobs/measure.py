"""The job of the demonstration: parse one Python file and measure it."""

from __future__ import annotations

import ast
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

from glidemq_async import Job

FLAKY_PERCENT: Final = 8


class SourceFile(TypedDict):
    """The payload of a job: a directory, and the relative path of a file in it."""

    root: str
    file: str


class Measure(TypedDict):
    """The result of a job. `complexity` counts decisions (cyclomatic), `longest` is in lines."""

    file: str
    status: Literal["measured", "unparsable", "unreadable"]
    problem: str
    size: int
    lines: int
    functions: int
    classes: int
    imports: int
    nesting: int
    longest: int
    longest_name: str
    complexity: int
    hardest: int
    hardest_name: str


class FlakyError(RuntimeError):
    """The failure that is simulated in the first run of some jobs."""


def is_flaky(file: str) -> bool:
    """Return whether the first run of this file's job fails: the same 8 % of all files each time."""
    return zlib.crc32(file.encode()) % 100 < FLAKY_PERCENT


async def process(job: Job[SourceFile, Measure]) -> Measure:
    """Handle one job.

    This is a coroutine function although it computes. Threads would not be faster, because the interpreter runs one of
    them at a time, and CPython 3.11 raises SystemError if two threads parse at the same time. The worker renews leases
    in a separate thread, so a blocked event loop loses none.
    """
    file = job.data["file"]
    if job.attempts_made == 0 and is_flaky(file):
        raise FlakyError(f"{file}: simulated, the next run succeeds")
    return measure(Path(job.data["root"]), file)


def measure(root: Path, file: str) -> Measure:
    """Measure one file. One that does not parse is a result, not a failure."""
    try:
        source = (root / file).read_bytes()
    except OSError as error:
        return _empty(file, "unreadable", str(error), b"")
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return _empty(file, "unparsable", f"{error.msg} (line {error.lineno})", source)
    except (ValueError, RecursionError, MemoryError) as error:
        return _empty(file, "unparsable", f"{type(error).__name__}: {error}", source)
    return _measured(file, source, tree)


def _empty(file: str, status: Literal["unparsable", "unreadable"], problem: str, source: bytes) -> Measure:
    return Measure(
        file=file,
        status=status,
        problem=problem,
        size=len(source),
        lines=len(source.splitlines()),
        functions=0,
        classes=0,
        imports=0,
        nesting=0,
        longest=0,
        longest_name="",
        complexity=0,
        hardest=0,
        hardest_name="",
    )


def _measured(file: str, source: bytes, tree: ast.Module) -> Measure:
    walk = _Walk(tree)
    longest = max(walk.functions, key=lambda found: found.lines, default=_NO_FUNCTION)
    hardest = max(walk.functions, key=lambda found: found.complexity, default=_NO_FUNCTION)
    return Measure(
        file=file,
        status="measured",
        problem="",
        size=len(source),
        lines=len(source.splitlines()),
        functions=len(walk.functions),
        classes=walk.classes,
        imports=walk.imports,
        nesting=walk.nesting,
        longest=longest.lines,
        longest_name=longest.name,
        complexity=walk.outside.complexity - 1 + sum(found.complexity for found in walk.functions),
        hardest=hardest.complexity,
        hardest_name=hardest.name,
    )


@dataclass(slots=True)
class _Function:
    name: str
    lines: int
    complexity: int = 1


_NO_FUNCTION: Final = _Function("", 0, 0)

_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_BLOCKS: Final = (
    *(*_FUNCTIONS, ast.ClassDef, ast.If, ast.For, ast.AsyncFor, ast.While),
    *(ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match),
)
_DECISIONS: Final = (
    *(ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While),
    *(ast.ExceptHandler, ast.match_case),
)
# One look at a set per node instead of a row of isinstance calls: there are millions of nodes.
_IS_BLOCK: Final = frozenset(_BLOCKS)
_IS_DECISION: Final = frozenset(_DECISIONS)


class _Walk:
    """One pass over a tree, without recursion: generated files nest deeper than Python's stack."""

    def __init__(self, tree: ast.Module) -> None:
        self.outside = _Function("", 0)
        self.functions: list[_Function] = []
        self.classes = self.imports = self.nesting = 0
        stack: list[tuple[ast.AST, int, _Function]] = [(tree, 0, self.outside)]
        while stack:
            node, depth, inside = stack.pop()
            kind = type(node)
            if kind in _IS_DECISION:
                inside.complexity += 1
            elif isinstance(node, ast.BoolOp):
                inside.complexity += len(node.values) - 1
            elif isinstance(node, ast.comprehension):
                inside.complexity += 1 + len(node.ifs)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                self.imports += len(node.names)
            elif isinstance(node, ast.ClassDef):
                self.classes += 1
            elif isinstance(node, _FUNCTIONS):
                inside = _Function(node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
                self.functions.append(inside)
            if kind in _IS_BLOCK:
                depth += 1
                self.nesting = max(self.nesting, depth)
            self._push_children(stack, node, depth, inside)

    def _push_children(
        self, stack: list[tuple[ast.AST, int, _Function]], node: ast.AST, depth: int, inside: _Function
    ) -> None:
        # An `elif` is an If alone in the orelse of another one; it has the same depth as the first one.
        chained = node.orelse[0] if isinstance(node, ast.If) and len(node.orelse) == 1 else None
        for name in node._fields:
            value: Any = getattr(node, name, None)
            if isinstance(value, ast.AST):
                stack.append((value, depth, inside))
            elif isinstance(value, list):
                for child in value:  # pyright: ignore[reportUnknownVariableType]
                    if isinstance(child, ast.AST):
                        same = child is chained and isinstance(child, ast.If)
                        stack.append((child, depth - same, inside))
