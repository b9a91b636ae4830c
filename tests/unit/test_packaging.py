"""The files of the installed package, editable or from a wheel."""

import subprocess
import sys
from importlib import resources

import pytest

# Isolated from the current directory and the environment, so that only installed packages can be imported.
PROBE = """
import importlib.util
import glidemq_async, glidemq_async.functions, glidemq_async.executors, glidemq_async.demo
bare = [name for name in ("functions", "executors", "demo", "benchmarks", "tests") if importlib.util.find_spec(name)]
print(bare)
"""


@pytest.mark.smoke
def test_nothing_is_importable_under_a_bare_name() -> None:
    found = subprocess.run([sys.executable, "-I", "-c", PROBE], capture_output=True, text=True, check=True, cwd="/")
    assert found.stdout.strip() == "[]"


@pytest.mark.smoke
def test_the_server_functions_and_the_type_marker_are_installed() -> None:
    names = {entry.name for entry in resources.files("glidemq_async.functions").iterdir()}
    assert "base.lua" in names
    assert (resources.files("glidemq_async") / "py.typed").is_file()
    static = resources.files("glidemq_async.web").joinpath("static")
    assert static.joinpath("app.css").is_file()
    assert static.joinpath("vendor", "uplot.LICENSE").is_file()
    assert resources.files("glidemq_async.web").joinpath("templates", "base.html.j2").is_file()
