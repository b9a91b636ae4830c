"""Versions of the package and of the functions. The text of released functions never changes."""

from __future__ import annotations

import json
import os
from importlib.metadata import version
from pathlib import Path

import pytest

import glidemq_async
from glidemq_async.functions import __main__ as release
from glidemq_async.functions import loader


def test_a_released_version_of_the_functions_keeps_its_text() -> None:
    mark = loader.fingerprint(loader.source())
    known = loader.released().get(loader.VERSION, mark)
    assert known == mark, (
        f"version {loader.VERSION} of the functions is released, and the text has changed: raise VERSION in "
        "functions/loader.py. Its builds are then under development until `make release-functions`."
    )


def test_an_unreleased_text_has_the_build_of_its_newest_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in loader.FILES:
        (tmp_path / f"{name}.lua").write_text("")
        os.utime(tmp_path / f"{name}.lua", (1_000, 1_000))
    os.utime(tmp_path / "add.lua", (2_000, 2_000))
    (tmp_path / "released.json").write_text("{}")
    monkeypatch.setattr(loader, "_folder", lambda: tmp_path)
    build = loader.build_version.__wrapped__
    assert build() == f"{loader.VERSION}.dev2000000"
    assert build(testing=True) == f"{loader.VERSION}.dev2000000+testing"
    (tmp_path / "released.json").write_text(json.dumps({loader.VERSION: "0123"}))
    assert build() == loader.VERSION


def test_a_release_is_recorded_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "released.json").write_text(json.dumps({"0.9.0": "0123"}))
    monkeypatch.setattr(release, "__file__", str(tmp_path / "__main__.py"))
    monkeypatch.setattr(loader, "released", lambda: json.loads((tmp_path / "released.json").read_text()))
    monkeypatch.setattr(loader, "source", lambda: "one text")
    release.main()
    release.main()
    assert loader.released() == {"0.9.0": "0123", loader.VERSION: loader.fingerprint("one text")}
    monkeypatch.setattr(loader, "source", lambda: "another text")
    with pytest.raises(SystemExit, match="raise VERSION"):
        release.main()


def test_the_package_has_its_version() -> None:
    assert glidemq_async.__version__ == version("glidemq-async")
