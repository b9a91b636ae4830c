"""The files that browsers load: their hashes, licences and sizes, and that nothing comes from another server."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from importlib import resources
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("jinja2")

from glidemq_async.web.pages.rendering import environment
from glidemq_async.web.pages.static_files import NAMES, content

STATIC = resources.files("glidemq_async.web").joinpath("static")
TEMPLATES = resources.files("glidemq_async.web").joinpath("templates")
# Names of XML vocabularies, and the comment at the head of the chart library. Browsers request none of them.
NOT_REQUESTED = ("http://www.w3.org/2000/svg", "https://github.com/leeoniya/uPlot")


def _vendored() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads(STATIC.joinpath("vendor.json").read_text("utf-8"))
    return found


def test_vendored_files_have_the_listed_hash_and_a_licence() -> None:
    listed = _vendored()
    assert {name.removeprefix("vendor/") for name in NAMES if name.startswith("vendor/")} == listed.keys()
    for name, row in listed.items():
        assert hashlib.sha256(content(f"vendor/{name}")).hexdigest() == row["sha256"], name
        licence = STATIC.joinpath("vendor", row["file"]).read_text("utf-8")
        assert "Permission is hereby granted" in licence or "SIL Open Font License" in licence


def test_own_files_are_small() -> None:
    assert len(content("app.css")) < 24_000
    assert len(content("app.js")) < 12_000
    packed = {name: len(gzip.compress(content(name))) for name in NAMES}
    assert sum(packed.values()) < 72_000, packed


@pytest.mark.parametrize("name", NAMES)
def test_no_file_names_another_server(name: str) -> None:
    text = content(name).decode("latin-1")
    for known in NOT_REQUESTED:
        text = text.replace(known, "")
    assert re.findall(r"""(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s"')]*""", text) == []


def test_no_template_names_another_server_or_has_inline_code() -> None:
    for entry in TEMPLATES.iterdir():
        text = entry.read_text("utf-8")
        assert not re.search(r"""(?:src|href|action)="(?:https?:)?//""", text), entry.name
        assert not re.search(r"\son[a-z]+=|\sstyle=|<style|<script(?![^>]*src=)|\|\s*safe\b", text), entry.name


def test_every_template_compiles() -> None:
    names: list[Any] = environment().list_templates()
    assert len(names) > 15
    for name in names:
        environment().get_template(name)


def test_the_script_has_no_html_sink() -> None:
    sinks = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser|createContextualFragment"
    )
    assert re.findall(sinks, content("app.js").decode()) == []
