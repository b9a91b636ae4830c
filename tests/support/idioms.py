"""Count idioms that make technical English hard to read, in code, Lua, documents and the files of the project.

`python -m tests.support.idioms [path ...]` prints each hit of the given files, or the rate of each idiom for the whole
repository.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

ROOT = Path(__file__).parents[2]
CODE = ("glidemq_async", "pyspark_glidemq", "functions", "executors", "demo", "tests", "benchmarks", "examples")
DOCUMENTS = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs")
PROJECT = ("setup.py", "Makefile", "pyproject.toml")
_SENTENCE_WORDS = 4
"""Least number of words of a string literal that counts as prose. A shorter one is a name, a key or a format."""


class Idiom(NamedTuple):
    """A pattern, and how often it may occur in 10,000 words."""

    pattern: re.Pattern[str]
    limit: float


def _idiom(pattern: str, limit: float) -> Idiom:
    return Idiom(re.compile(pattern), limit)


# The limits are twice the rates that were measured in trio's docstrings and comments, and at least 1.
IDIOMS = {
    "tell": _idiom(r"\b[Tt](?:ells?|old|elling)\b(?! apart)", 6.0),
    "noun clause first": _idiom(r"(?:^|[.:!?] )(?:What|Who|Whoever|Whatever) (?!to\b)[a-z]+(?![^.]*\?)", 1.8),
    "of what": _idiom(r"\b(?:of|for|from|with|by|refuse|beside|than|to|on) what\b", 3.0),
    "that of": _idiom(r"\b(?:that of|those of|those that)\b", 1.0),
    "is no": _idiom(r"\b(?:is|are|was|were|be) no [a-z]", 4.2),
    "nobody": _idiom(r"\b(?:[Nn]obody|[Ss]omebody)\b", 7.2),
    "stand": _idiom(r"\b(?:stands?|stood)\b(?! for\b)", 1.0),
    "of its own": _idiom(r"\bof (?:its|their) own\b", 1.0),
    "Answers": _idiom(r"(?:^|[.] )Answers\b", 1.0),
    "Whether": _idiom(r"(?:^|[.] )Whether\b", 1.0),
    "at once": _idiom(r"\bat once\b", 1.2),
    "so many": _idiom(r"\bso (?:many|long|often|much)\b(?! as| that)", 1.0),
    "goes on": _idiom(r"\b(?:goes|go|going|went) on\b", 1.0),
    "meanwhile": _idiom(r"\b[Mm]eanwhile\b", 1.0),
    "beside": _idiom(r"\b[Bb]eside\b", 1.0),
    "give back": _idiom(r"\b(?:hand|hands|handed|give|gives|given|gave|take|takes|taken|took)(?: \w+)? back\b", 1.0),
}


def python_prose(text: str, *, with_texts: bool = True) -> Iterator[str]:
    """Yield each docstring, each run of comment lines and each text of a Python source.

    A text is a string literal of several words, for example a message or a help text. `with_texts=False` leaves texts
    out, for tests, where they are data.
    """
    tree = ast.parse(text)
    for node in _definitions(tree):
        yield from _docstrings(node)
    if with_texts:
        yield from _texts(ast.walk(tree))
    run: list[str] = []
    last = 0
    for line, comment in _comments(text):
        if line != last + 1 and run:
            yield " ".join(run)
            run = []
        run.append(comment.lstrip("# "))
        last = line
    if run:
        yield " ".join(run)


_Definition: TypeAlias = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _definitions(tree: ast.Module) -> Iterator[_Definition]:
    """Yield the module and each class and function, without a visit of the expressions."""
    found: list[ast.AST] = [tree]
    while found:
        node = found.pop()
        if isinstance(node, _Definition):
            yield node
        for field in _BLOCKS:
            found.extend(getattr(node, field, ()))


_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""The fields of a syntax tree that contain statements."""
_COMMENT = re.compile(r"""("{3}|'{3}|["'])(?:\\.|.)*?\1|(#[^\n]*)""", re.DOTALL)
"""A string literal or a comment, which is the second group. It takes a tenth of the time of `tokenize`."""


def _comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line number and the text of each comment of a Python source."""
    line, position = 1, 0
    for match in _COMMENT.finditer(text):
        if match[2]:
            line += text.count("\n", position, match.start())
            position = match.start()
            yield line, match[2]


def _docstrings(node: _Definition) -> Iterator[str]:
    for child in node.body:
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant) and isinstance(child.value.value, str):
            yield from child.value.value.split("\n\n")


def _texts(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield each string literal that is a sentence, with "code" in place of each value of an f-string."""
    nodes = [node for node in nodes if isinstance(node, ast.Expr | ast.JoinedStr | ast.Constant)]
    skipped = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        found = ""
        if isinstance(node, ast.JoinedStr):
            skipped.update(id(part) for part in node.values)
            found = "".join(str(part.value) if isinstance(part, ast.Constant) else "code" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            found = node.value
        if len(found.split()) >= _SENTENCE_WORDS:
            yield from found.split("\n\n")


def lua_prose(text: str) -> Iterator[str]:
    """Yield each run of comment lines of a Lua source."""
    run: list[str] = []
    for line in text.splitlines():
        code, mark, comment = line.partition("--")
        if mark and not code.strip():
            run.append(comment.strip())
            continue
        if run:
            yield " ".join(run)
            run = []
        if mark:
            yield comment.strip()
    if run:
        yield " ".join(run)


def project_prose(text: str) -> Iterator[str]:
    """Yield each run of comment lines, and each quoted text, of a Makefile or a TOML file."""
    run: list[str] = []
    for line in [*text.splitlines(), ""]:
        code, mark, comment = line.partition("# ")
        if mark and not code.strip():
            run.append(comment.strip())
            continue
        if run:
            yield " ".join(run)
            run = []
        yield from (found for found in re.findall(r'"([^"]+)"', code) if len(found.split()) >= _SENTENCE_WORDS)
        if mark:
            yield comment.strip()


def document_prose(text: str) -> Iterator[str]:
    """Yield each paragraph, list item and table row of a Markdown document, without code."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "code", text)
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.) )", text):
        yield " ".join(paragraph.replace("|", " . ").split())


def prose(path: Path) -> Iterator[str]:
    """Yield the pieces of prose in a file, by its kind."""
    text = path.read_text(encoding="utf-8")
    kinds = {".lua": lua_prose, ".md": document_prose, ".toml": project_prose, "": project_prose}
    is_test = "tests" in path.parts
    pieces = python_prose(text, with_texts=not is_test) if path.suffix == ".py" else kinds[path.suffix](text)
    for piece in pieces:
        yield " ".join(piece.split())


def files(names: Iterable[str], root: Path = ROOT) -> list[Path]:
    """Return the files of prose below some folders of the repository; linked folders count once."""
    found: set[Path] = set()
    for name in names:
        path = root / name
        inside = [path] if path.is_file() else [one for kind in ("py", "lua", "md") for one in path.rglob(f"*.{kind}")]
        found.update(one for one in inside if not any(parent.is_symlink() for parent in one.parents))
    return sorted(found)


def count(paths: Iterable[Path]) -> tuple[Counter[str], int]:
    """Return how often each idiom occurs in the files, and the number of their words."""
    hits: Counter[str] = Counter()
    words = 0
    for path in paths:
        for piece in prose(path):
            words += len(re.findall(r"[A-Za-z']+", piece))
            for name, idiom in IDIOMS.items():
                hits[name] += len(idiom.pattern.findall(piece))
    return hits, words


def _print_hits(paths: Iterable[Path]) -> None:
    for path in paths:
        for piece in prose(path):
            for name, idiom in IDIOMS.items():
                for match in idiom.pattern.finditer(piece):
                    around = piece[max(0, match.start() - 60) : match.end() + 60]
                    print(f"{path}: {name}: …{around}…")


def _print_rates() -> None:
    for title, names in (("code", (*CODE, *PROJECT)), ("documents", DOCUMENTS)):
        hits, words = count(files(names))
        print(f"{title}: {words} words")
        for name, idiom in IDIOMS.items():
            rate = hits[name] * 10_000 / words
            mark = "  too often" if rate > idiom.limit else ""
            print(f"  {name:18} {hits[name]:5} {rate:6.1f} of {idiom.limit:4.1f}{mark}")


if __name__ == "__main__":
    chosen = [Path(name) for name in sys.argv[1:]]
    if chosen:
        _print_hits(files(str(path.absolute()) for path in chosen))
    else:
        _print_rates()
