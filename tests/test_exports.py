"""The public surface: exports are sorted, complete and documented, and no private name leaks."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import pkgutil
import re
import subprocess
import sys
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import glidemq_async

WITH_SPARK = importlib.util.find_spec("pyspark") is not None
SPARK = ["glidemq_async.spark"]
PUBLIC = [
    "glidemq_async",
    "glidemq_async.payloads.codecs",
    "glidemq_async.executors",
    "glidemq_async.executors.sandbox",
    "glidemq_async.integrations.aiohttp",
    "glidemq_async.integrations.fastapi",
    "glidemq_async.integrations.signal_links",
    "glidemq_async.integrations.signal_pages",
    "glidemq_async.integrations.starlette",
    "glidemq_async.web",
    "glidemq_async.ops",
    "glidemq_async.storage",
    "glidemq_async.tasks",
    "glidemq_async.telemetry",
    "glidemq_async.testing",
    "glidemq_async.web",
    "glidemq_async.worker",
    *(SPARK if WITH_SPARK else []),
]
PARTS = {"glidemq_async.spark.pipeline", "glidemq_async.spark.pipeline.live", "glidemq_async.spark.pipeline.rollup"}
"""Modules that users import directly, because their package does not import them."""


def modules() -> list[ModuleType]:
    # A package of Spark cannot be imported where pyspark is missing.
    walked = pkgutil.walk_packages(glidemq_async.__path__, "glidemq_async.", onerror=lambda _name: None)
    names = [info.name for info in walked]
    chosen = (name for name in names if WITH_SPARK or not name.startswith("glidemq_async.spark"))
    return [glidemq_async, *(importlib.import_module(name) for name in chosen if not name.endswith("__main__"))]


@pytest.mark.parametrize("name", PUBLIC)
def test_exports_are_sorted_and_exist(name: str) -> None:
    module = importlib.import_module(name)
    exported: list[str] = module.__all__
    assert exported == sorted(exported)
    assert len(exported) == len(set(exported))
    assert [each for each in exported if not hasattr(module, each)] == []
    assert [each for each in exported if each.startswith("_") and each != "__version__"] == []


def imports_for_users(module: ModuleType) -> dict[str, str]:
    """Return the names that the `__init__` of a package imports, with their modules, including imports for type
    checkers.
    """
    source = Path(str(module.__file__))
    stub = source.with_suffix(".pyi")
    tree = ast.parse((stub if stub.exists() else source).read_text())
    return {
        alias.asname or alias.name: importlib.util.resolve_name("." * node.level + str(node.module), module.__name__)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module not in ("__future__", "typing", module.__name__)
        for alias in node.names
    }


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_a_package_imports_for_its_users_is_exported(name: str) -> None:
    module = importlib.import_module(name)
    if hasattr(module, "__path__"):
        assert imports_for_users(module).keys() == set(module.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_type_checkers_see_the_names_of_the_runtime(name: str) -> None:
    module = importlib.import_module(name)
    for each, source in imports_for_users(module).items():
        assert getattr(module, each) is getattr(importlib.import_module(source), each)
    shown = {each for each in dir(module) if each not in vars(module)}
    assert {each for each in shown if not inspect.ismodule(getattr(module, each))} <= set(module.__all__)


def test_modules_are_attributes_without_a_separate_import() -> None:
    program = (
        "import glidemq_async as g; print(g.tasks.Depends is g.Depends, issubclass(g.errors.LeaseLost, Exception),"
        " g.storage.RedisStorage.__name__, 'Worker' in dir(g), 'storage' in dir(g))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.split() == ["True", "True", "RedisStorage", "True", "True"]


def test_a_star_import_has_every_name() -> None:
    found: dict[str, object] = {}
    exec("from glidemq_async import *", found)
    assert set(vars(glidemq_async)["__all__"]) <= found.keys()


def test_a_missing_name_raises_the_usual_error() -> None:
    with pytest.raises(AttributeError, match="module 'glidemq_async' has no attribute 'Wroker'"):
        attrgetter("Wroker")(glidemq_async)
    with pytest.raises(ImportError, match="cannot import name 'Wroker' from 'glidemq_async'"):
        exec("from glidemq_async import Wroker")


def test_the_names_that_documents_import_are_public() -> None:
    root = Path(__file__).parents[1]
    texts = [path.read_text() for path in (root / "README.md", *(root / "docs").rglob("*.md"))]
    named = {name for text in texts for name in re.findall(r"^from (glidemq_async[\w.]*) import", text, re.MULTILINE)}
    assert named <= {*PUBLIC, *SPARK, *PARTS}
    assert len(named) > 5


def test_every_error_is_exported() -> None:
    errors = importlib.import_module("glidemq_async.errors")
    internal = {"ControlFlow"}
    assert set(errors.__all__) - internal <= set(vars(glidemq_async)["__all__"])
    for name in set(errors.__all__):
        assert issubclass(getattr(errors, name), glidemq_async.GlideMQError)


def test_the_names_of_the_contract_exist() -> None:
    promised = {"Backoff", "Job", "JobOptions", "KeepJobs", "Queue", "QueueEvents", "Worker", "WorkerPool"}
    promised |= {"RateLimited", "RetryLater", "UnrecoverableError"}
    assert promised <= set(vars(glidemq_async)["__all__"])
    storage = importlib.import_module("glidemq_async.storage")
    assert {"FileStorage", "MemoryStorage", "RedisStorage", "Storage", "open_storage"} <= set(storage.__all__)
    executors = importlib.import_module("glidemq_async.executors")
    assert {"Executor", "InlineExecutor", "ThreadExecutor"} <= set(executors.__all__)
    assert glidemq_async.Permissions is executors.Permissions


def documented(owner: str, thing: Any) -> list[str]:
    """Return the names that should have a docstring and have none."""
    missing = [] if inspect.getdoc(thing) else [owner]
    if inspect.isclass(thing):
        for name, member in vars(thing).items():
            if name.startswith("_"):
                continue
            is_ours = inspect.isfunction(member) or type(member) in (classmethod, staticmethod, property)
            if is_ours and not inspect.getdoc(getattr(thing, name)):
                missing.append(f"{owner}.{name}")
    return missing


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_thing_is_documented(name: str) -> None:
    module = importlib.import_module(name)
    missing = [
        gap
        for each in module.__all__
        for gap in documented(each, getattr(module, each))
        if inspect.isclass(getattr(module, each)) or inspect.isfunction(getattr(module, each))
    ]
    assert missing == []


def test_every_module_has_a_short_docstring() -> None:
    for module in modules():
        text = inspect.getdoc(module)
        assert text, f"{module.__name__} has no docstring"
        assert len(text.splitlines()) <= 5, f"{module.__name__}: {len(text.splitlines())} lines"


def test_public_signatures_show_no_private_names() -> None:
    leaks: list[str] = []
    for name in PUBLIC:
        module = importlib.import_module(name)
        for each in module.__all__:
            thing = getattr(module, each)
            if not (inspect.isclass(thing) or inspect.isfunction(thing)):
                continue
            functions = [thing] if inspect.isfunction(thing) else list(vars(thing).values())
            for function in functions:
                if inspect.isfunction(function) and (not function.__name__.startswith("_") or function is thing):
                    hints = [str(hint) for hint in function.__annotations__.values()]
                    leaks += [
                        f"{each}.{function.__name__}: {hint}" for hint in hints if "._" in hint or hint.startswith("_")
                    ]
    assert leaks == []


def test_the_package_is_typed() -> None:
    assert (Path(glidemq_async.__path__[0]) / "py.typed").exists()


@pytest.mark.parametrize("package", ["glidemq_async", "glidemq_async.worker", "glidemq_async.storage"])
def test_completion_on_a_package_shows_only_its_public_names(package: str) -> None:
    program = (
        f"import {package} as package, glidemq_async; from glidemq_async import *; "
        "print(*(name for name in dir(package) if not name.startswith('__')))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    stub = Path(importlib.import_module(package).__file__ or "").with_suffix(".pyi")
    assert set(shown) == set(re.findall(r" as (\w+)$", stub.read_text(), re.MULTILINE)) - {"__version__"}
