"""The public surface: what is exported is sorted, complete and documented, and nothing private leaks."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import glidemq_async

PUBLIC = ["glidemq_async", "glidemq_async.storage", "glidemq_async.executors", "glidemq_async.worker"]


def modules() -> list[ModuleType]:
    names = [info.name for info in pkgutil.walk_packages(glidemq_async.__path__, "glidemq_async.")]
    return [glidemq_async, *(importlib.import_module(name) for name in names if not name.endswith("__main__"))]


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_exported_is_sorted_and_there(name: str) -> None:
    module = importlib.import_module(name)
    exported: list[str] = module.__all__
    assert exported == sorted(exported)
    assert len(exported) == len(set(exported))
    assert [each for each in exported if not hasattr(module, each)] == []
    assert [each for each in exported if each.startswith("_")] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_a_package_imports_for_its_users_is_exported(name: str) -> None:
    module = importlib.import_module(name)
    tree = ast.parse(Path(str(module.__file__)).read_text())
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
    }
    assert imported <= set(module.__all__)


def test_every_error_is_exported() -> None:
    errors = importlib.import_module("glidemq_async.errors")
    internal = {"ControlFlow"}
    assert set(errors.__all__) - internal <= set(glidemq_async.__all__)
    for name in set(errors.__all__):
        assert issubclass(getattr(errors, name), glidemq_async.GlideMQError)


def test_the_names_of_the_contract() -> None:
    promised = {"Backoff", "Job", "JobOptions", "KeepJobs", "Queue", "QueueEvents", "Worker", "WorkerPool"}
    promised |= {"RateLimited", "RetryLater", "UnrecoverableError"}
    assert promised <= set(glidemq_async.__all__)
    storage = importlib.import_module("glidemq_async.storage")
    assert {"FileStorage", "MemoryStorage", "RedisStorage", "Storage", "open_storage"} <= set(storage.__all__)
    executors = importlib.import_module("glidemq_async.executors")
    assert {"Executor", "InlineExecutor", "ThreadExecutor"} <= set(executors.__all__)


def documented(owner: str, thing: Any) -> list[str]:
    """The names of what should have a docstring of its own and has none."""
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


def test_every_module_says_in_a_few_lines_what_lives_there() -> None:
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
