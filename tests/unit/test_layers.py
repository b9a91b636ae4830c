"""The structure of the library: imports run downwards and in no circle, and every file has a readable size."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import glidemq_async
from glidemq_async.functions.loader import FILES

ROOT = Path(glidemq_async.__file__).parent
TOP = Path(__file__).parents[2]
MOST_LINES = 600
MOST_COLUMNS = 120
BESIDE = ("tests", "benchmarks", "examples")
"""Folders outside the library whose files must have a readable size too."""
LUA_OWN = frozenset(
    re.findall(
        r"\w+",
        "and break cmsgpack do else elseif end error for function if in ipairs local math next not or os pairs pcall "
        "redis repeat return select setmetatable string table then tonumber tostring type unpack until while",
    )
)
"""Names that Lua itself or the server defines."""

# From the lowest layer up: modules and packages of the library. Its own __init__ is in the layer of the interfaces.
LAYERS = (
    "durations functions instrumentation",
    "errors",
    "stored",
    "options",
    "_internal schedules",
    "payloads storage telemetry",
    "client",
    "jobs",
    "filters",
    "executors queues topics",
    "flows spark worker workflows",
    "tasks",
    "ops",
    "integrations",
    "web",
    "cli demo testing tui",
    "__main__",
)
FLOORS = {f"glidemq_async.{name}": floor for floor, names in enumerate(LAYERS) for name in names.split()}
# Started by path in a separate process, which must be ready within milliseconds.
ALONE = "glidemq_async.storage.embedded.keeper"


@cache
def sources() -> dict[str, Path]:
    """Return every module by its name. The three linked folders are named, because a search of a folder does not follow
    links.
    """
    folders = [ROOT, ROOT / "functions", ROOT / "executors", ROOT / "demo"]
    paths = {path for folder in folders for path in folder.rglob("*.py")}
    return {_name(path): path for path in sorted(paths)}


def _name(path: Path, root: Path = ROOT.parent) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


@cache
def imports() -> dict[str, frozenset[str]]:
    """Return the imports of the library in each module, including imports in functions and imports for types."""
    return _imports_of(sources())


def _imports_of(modules: Mapping[str, Path]) -> dict[str, frozenset[str]]:
    """Return the imports of each module from among these modules."""
    # The stub of a package lists the imports that its __init__ makes when a name is first used.
    seen = {
        name: path.with_suffix(".pyi") if path.with_suffix(".pyi").exists() else path for name, path in modules.items()
    }
    return {name: frozenset(_imported(name, path, modules)) - {name} for name, path in seen.items()}


def _imported(name: str, path: Path, modules: Mapping[str, Path]) -> Iterator[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] + "." if node.level else ""
            source = (above + (node.module or "")).rstrip(".")
            if source == name and path.suffix == ".pyi":
                continue  # A package exports its own modules, which are imported by name.
            for alias in node.names:
                found = next((one for one in (f"{source}.{alias.name}", source) if one in modules), None)
                if found is not None:
                    yield found


def _floor(module: str) -> int:
    if module == "glidemq_async":
        return FLOORS["glidemq_async.tasks"]
    return FLOORS[".".join(module.split(".")[:2])]


def test_the_import_scan_covers_the_library() -> None:
    assert {"glidemq_async", "glidemq_async.functions.callers", "glidemq_async.executors.thread"} <= sources().keys()
    assert "glidemq_async.storage.redis.retry" in imports()["glidemq_async.storage.redis.server"]
    assert "glidemq_async._internal.failpoints" in imports()["glidemq_async.worker.runs"]


def test_every_module_has_a_layer() -> None:
    known = {".".join(name.split(".")[:2]) for name in sources()} - {"glidemq_async"}
    assert known == FLOORS.keys(), "add a new module to LAYERS, above"


def test_the_documents_describe_each_package() -> None:
    text = (TOP / "docs" / "internals" / "design.md").read_text(encoding="utf-8")
    rows = text.partition("## Packages")[2].partition("## ")[0]
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert {name for name in packages if f"{name}/`" not in rows} == set()


def test_imports_run_downwards() -> None:
    upward = [
        f"{module} imports {imported}"
        for module, found in imports().items()
        for imported in sorted(found)
        if _floor(imported) > _floor(module)
    ]
    assert not upward, upward


def test_no_imports_run_in_a_circle() -> None:
    # A package's __init__ exports its contents, so it is above its modules, which import each other by name.
    assert _circle(imports()) == ""


def test_the_benchmarks_have_no_imports_in_a_circle() -> None:
    found = _imports_of({_name(path, TOP): path for path in sorted((TOP / "benchmarks").rglob("*.py"))})
    assert "benchmarks.spark.setup" in found["benchmarks.spark.runner"]
    assert _circle(found) == ""


def test_a_circle_of_imports_is_detected() -> None:
    assert _circle({"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset({"a"})}).count(" -> ") == 3


def _circle(found: Mapping[str, frozenset[str]]) -> str:
    """Return the modules of a circle of imports, or "" if there is none."""
    try:
        TopologicalSorter(found).prepare()
    except CycleError as error:
        return " -> ".join(error.args[1])
    return ""


def test_the_worker_imports_no_executor() -> None:
    known = {f"glidemq_async.executors.{name}" for name in ("protocol", "registry", "sharing")}
    for module, found in imports().items():
        if module.startswith("glidemq_async.worker"):
            assert {one for one in found if one.startswith("glidemq_async.executors")} <= known, module


def test_separate_programs_import_nothing_of_the_library() -> None:
    assert imports()[ALONE] == frozenset()


@cache
def lua() -> Mapping[str, str]:
    """Return the code of each joined Lua file, without comments and texts."""
    texts = {name: (ROOT / "functions" / f"{name}.lua").read_text(encoding="utf-8") for name in FILES}
    return {name: re.sub(r"--[^\n]*|'[^'\n]*'", "", text) for name, text in texts.items()}


def _owners() -> dict[str, int]:
    """Return the files that others use by their name, and their positions."""
    return {name: number for number, name in enumerate(FILES) if f"\nlocal {name} = " in lua()[name]}


def _declared(code: str) -> set[str]:
    """Return the names that are local to the file somewhere in it."""
    found = re.findall(r"\blocal\s+(?!function\b)([\w\s,]+?)\s*(?:=|\n|;|$)", code)
    found += re.findall(r"\blocal function (\w+)", code)
    found += re.findall(r"\bfunction\b[^(\n]*\(([^)]*)\)", code)
    found += re.findall(r"\bfor\s+([\w\s,]+?)\s*(?:=|\bin\b)", code)
    return {name for names in found for name in re.findall(r"\w+", names)}


def _used(code: str) -> set[str]:
    """Return the names whose fields are used or that are called."""
    return set(re.findall(r"(?<![\w.:])([A-Za-z_]\w*)\s*[.(\[]", code)) - LUA_OWN


def test_each_folder_of_unit_tests_has_the_name_of_a_package() -> None:
    packages = {path.name for path in ROOT.iterdir() if path.is_dir()}
    folders = {path.parent.name for path in Path(__file__).parent.glob("*/__init__.py")}
    assert len(folders) > 5
    assert folders <= packages


def test_a_lua_file_uses_only_files_above_it() -> None:
    owners = _owners()
    for number, name in enumerate(FILES):
        for other, position in owners.items():
            if position > number:
                assert not re.search(rf"(?<![\w.]){other}\.", lua()[name]), (
                    f"{name}.lua uses {other}.lua, joined after it"
                )
    assert len(owners) > 10


def test_a_lua_file_exports_only_the_table_of_its_name() -> None:
    # Each file is joined as a separate block: its other locals end with it.
    shown = _owners().keys() | _declared(lua()["base"])
    strange = {name: _used(code) - _declared(code) - shown for name, code in lua().items()}
    assert {name: names for name, names in strange.items() if names} == {}


def test_the_analysis_of_the_lua_finds_undeclared_names() -> None:
    code = "local a, b = 1, 2\nfunction a.run(c)\n  for i, d in pairs(c) do b(d.x, e.y, f(i), g[1]) end\nend"
    assert _used(code) - _declared(code) == {"e", "f", "g"}


def test_no_lua_line_is_too_wide_to_read() -> None:
    wide = [
        f"{path.name}:{number}"
        for path in sorted((ROOT / "functions").glob("*.lua"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > MOST_COLUMNS
    ]
    assert not wide, wide


def test_no_file_is_too_long_to_read() -> None:
    beside = [path for folder in BESIDE for path in (TOP / folder).rglob("*.py")]
    paths = [*sources().values(), *(ROOT / "functions").glob("*.lua"), *beside]
    assert Path(__file__) in beside
    sizes = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert len([name for name in sizes if name.endswith(".lua")]) > len(FILES)
    assert {name: size for name, size in sizes.items() if size > MOST_LINES} == {}
