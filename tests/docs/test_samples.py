"""The samples of the documentation run: each Python block of the README and of docs/, page by page.

The blocks of a page run in order, like one program, on a server of the test; `settings.py` has what they take for
granted. The pages about moving from another library, `from-*`, print exactly the values in the comments behind `print`.
Tests on a page run under pytest in its default modes. A block that cannot run has the comment
`<!-- fragment: reason -->` before it, or `<!-- fragments: reason -->` is on its page; it still has to compile.
"""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from tests.docs.blocks import PAGES, ROOT, Block, blocks
from tests.docs.settings import AFTER, AT, BEFORE, COMMON, PYTEST_AT, PYTEST_PAGES
from tests.support.helpers import soon
from tests.support.servers import Server, standalone

LANGUAGES = {"", "py", "python", "sh", "text", "json", "toml", "ts", "yaml"}
"""`py` and `ts` mark the code of other libraries, which does not run."""
FRAGMENTS_AT_MOST = 2
"""The number of fragments outside the pages about Spark."""
SPARK = {"spark", "spark-write", "spark-read", "spark-driver", "pipeline"}
OWN_TEST = {"project-layout": "test_project_layout.py"}
ALL = [block for page in PAGES for block in blocks(page)]
PYTHON = [block for block in ALL if block.language == "python"]
PRINTED = re.compile(r"print\(.*\)  # (.*)$", re.MULTILINE)
RUN = sorted({block.page for block in PYTHON if block.reason is None} - PYTEST_PAGES.keys() - OWN_TEST.keys())


@pytest.fixture
async def broker() -> AsyncIterator[Server]:
    async with standalone("--appendonly", "yes") as started:
        yield started


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory from which samples run and import each other."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def compiled(block: Block) -> CodeType:
    # A traceback shows the line of the page.
    lines = "\n" * (block.line - 1) + block.text
    return code_of(lines, f"{block.page}.md")


def code_of(text: str, about: str) -> CodeType:
    code: CodeType = compile(text, about, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return code


async def execute(code: CodeType, names: dict[str, Any]) -> None:
    """Run code whose top level may await."""
    coroutine = eval(code, names)
    if inspect.iscoroutine(coroutine):
        await coroutine


async def setting(text: str, names: dict[str, Any], about: str) -> None:
    await execute(code_of(text, about), names)


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: f"{block.page}:{block.line}")
def test_each_block_compiles(block: Block) -> None:
    compiled(block)


@pytest.mark.parametrize("block", [block for block in ALL if block.language == "py"], ids=lambda block: block.page)
def test_the_code_of_other_libraries_compiles(block: Block) -> None:
    compiled(block)


def test_fragments_are_few_and_have_their_reasons() -> None:
    fragments = [block for block in ALL if block.reason is not None]
    assert len([block for block in fragments if block.page not in SPARK]) <= FRAGMENTS_AT_MOST
    assert all(len(block.reason or "") > 10 for block in fragments)
    assert {block.language for block in ALL} <= LANGUAGES
    for file in OWN_TEST.values():
        assert (Path(__file__).parent / file).exists()


@pytest.mark.parametrize("page", RUN)
async def test_the_samples_of_a_page_run(
    page: str, broker: Server, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GLIDEMQ_URL", broker.url)
    known = set(sys.modules)
    names: dict[str, Any] = {"__name__": "sample", "url": broker.url}
    await setting(COMMON, names, "common setting")
    await setting(BEFORE.get(page, ""), names, f"setting of {page}")
    try:
        for number, block in enumerate(block for block in PYTHON if block.page == page):
            if block.reason is None:
                await setting(AT.get((page, number), ""), names, f"setting of {page}, sample {number}")
                await run(block, names, folder)
        if page.startswith("from-"):
            expected = [line for block in PYTHON if block.page == page for line in PRINTED.findall(block.text)]
            assert capsys.readouterr().out.splitlines() == expected
        await setting(AFTER.get(page, ""), names, f"after {page}")
    finally:
        for module in set(sys.modules) - known:
            if str(getattr(sys.modules[module], "__file__", "")).startswith(str(folder)):
                del sys.modules[module]


async def run(block: Block, names: dict[str, Any], folder: Path) -> None:
    if "asyncio.run(" in block.text:  # a complete program
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", block.text)
        assert await soon(process.wait(), 50) == 0
    elif block.file is not None:
        path = folder / block.file
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(block.text)
        importlib.invalidate_caches()
        importlib.import_module(block.file.removesuffix(".py").replace("/", "."))
    else:
        await execute(compiled(block), names)


@pytest.mark.parametrize("page", PYTEST_PAGES)
def test_the_tests_of_a_page_pass(page: str, tmp_path: Path) -> None:
    tests = 0
    for number, block in enumerate(block for block in PYTHON if block.page == page and block.reason is None):
        text = f"{PYTEST_PAGES[page]}{PYTEST_AT.get((page, number), '')}\n{block.text}"
        (tmp_path / f"test_{page}_{number}.py").write_text(text)
        tests += block.text.count("def test_")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")  # nothing is set: these are the default modes of all plugins
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    variables = {**os.environ, "GLIDEMQ_URL": "redis://127.0.0.1:1/0", "PYTHONPATH": path}
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=100, check=False)
    assert f"{tests} passed" in done.stdout, done.stdout + done.stderr
    assert tests


def test_the_tested_pages_are_all_pages_of_the_repository() -> None:
    assert ROOT / "README.md" in PAGES
    assert len(PAGES) > 15
