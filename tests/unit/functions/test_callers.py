"""The Python module of a Lua file has its name, and calls exactly the functions that the file registers."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import glidemq_async
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Calls
from glidemq_async.storage.urls import open_storage

FOLDER = Path(glidemq_async.__file__).parent / "functions"
SHARED = {"__init__", "__main__", "callers", "calling", "claimed_jobs", "loader", "outcomes"}
"""Modules that are not about one Lua file."""
OF_MESSAGES = {"push", "wakeup"}
"""Modules that read what a Lua file publishes, and call none of its functions."""
PAIRED = sorted({path.stem for path in FOLDER.glob("*.py")} - SHARED - OF_MESSAGES)
SENDERS = {"call", "call_after_silence", "once", "pieces", "read", "read_all", "_walk"}
"""Methods whose first argument is the name of a function."""
ASKED_BY_THE_LOADER = {"version"}


def is_sender(function: ast.expr) -> bool:
    """Return whether this expression is a method that sends a call, or `function_name` for a call in a transaction."""
    if isinstance(function, ast.Name):
        return function.id == "function_name"
    return isinstance(function, ast.Attribute) and function.attr in SENDERS


def called(module: str) -> set[str]:
    """Return the functions that a module calls."""
    tree = ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    sent = (node.args[0] for node in calls if is_sender(node.func))
    return {name.value for name in sent if isinstance(name, ast.Constant) and isinstance(name.value, str)}


@pytest.mark.parametrize("module", PAIRED)
def test_a_module_calls_the_functions_of_the_lua_file_of_its_name(module: str) -> None:
    text = (FOLDER / f"{module}.lua").read_text(encoding="utf-8")
    assert called(module) == set(re.findall(r"register\('(\w+)'", text)) - ASKED_BY_THE_LOADER


def test_every_function_has_a_caller() -> None:
    registered = {
        name
        for path in FOLDER.glob("*.lua")
        for name in re.findall(r"register\('(\w+)'", path.read_text(encoding="utf-8"))
        if path.stem != "testing"
    }
    assert registered - ASKED_BY_THE_LOADER == set[str]().union(*map(called, PAIRED))


def test_functions_has_one_part_for_each_module() -> None:
    parts = vars(Functions(open_storage("redis://127.0.0.1:1"), "glide:{q}")).values()
    modules = [type(part).__module__.rpartition(".")[2] for part in parts if isinstance(part, Calls)]
    assert sorted(modules) == PAIRED
