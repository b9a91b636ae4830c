"""An integration without its framework names the package to install."""

from __future__ import annotations

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "framework", "extra"),
    [
        ("fastapi", "fastapi", "fastapi"),
        ("starlette", "starlette.requests", "fastapi"),
        ("signal_pages", "starlette.applications", "fastapi"),
        ("aiohttp", "aiohttp", "aiohttp"),
    ],
)
def test_the_error_names_the_package(module: str, framework: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"glidemq_async.integrations.{module}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, framework, None)
    with pytest.raises(ImportError, match=rf"pip install .*glidemq-async\[{extra}\]"):
        importlib.import_module(name)
