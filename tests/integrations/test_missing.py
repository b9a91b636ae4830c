"""An integration whose framework is not installed says what to install."""

from __future__ import annotations

import importlib
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "framework", "extra"),
    [
        ("fastapi", "fastapi", "fastapi"),
        ("starlette", "starlette.requests", "fastapi"),
        ("aiohttp", "aiohttp", "aiohttp"),
    ],
)
def test_what_to_install(module: str, framework: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"glidemq_async.integrations.{module}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, framework, None)
    with pytest.raises(ImportError, match=rf"pip install .*glidemq-async\[{extra}\]"):
        importlib.import_module(name)
