"""The build of the library: imports run downwards, none in a circle, and every file stays readable."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import glidemq_async
from glidemq_async.functions.loader import FILES

ROOT = Path(glidemq_async.__file__).parent
MOST_LINES = 600

# From the ground up: modules and packages of the library. Its own __init__ stands on the faces' floor.
LAYERS = (
    (
        "abort backoff cron deduplication durations errors failpoints failure generics keys letter option_checks "
        "options payload_faults rates schedule serialization"
    ),
    "functions",
    "storage",
    (
        "adding checking cleaning client dead_letters inspection job limits outbox queue queue_events queue_part "
        "record results schedulers timekeeping"
    ),
    "executors",
    "worker",
    "cli",
)
FLOORS = {f"glidemq_async.{name}": floor for floor, names in enumerate(LAYERS) for name in names.split()}
# Started by path in a process of its own, which is to be up within milliseconds.
ALONE = "glidemq_async.storage.keeper"


@cache
def sources() -> dict[str, Path]:
    """Every module by its name. The two linked folders are named: a link is not walked into by itself."""
    folders = [ROOT, ROOT / "functions", ROOT / "executors"]
    paths = {path for folder in folders for path in folder.rglob("*.py")}
    return {_name(path): path for path in sorted(paths)}


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


@cache
def imports() -> dict[str, frozenset[str]]:
    """What each module imports of the library, wherever it does so: inside a function, or for types alone."""
    return {name: frozenset(_imported(name, path)) - {name} for name, path in sources().items()}


def _imported(name: str, path: Path) -> Iterator[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in sources())
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] + "." if node.level else ""
            source = (above + (node.module or "")).rstrip(".")
            for alias in node.names:
                found = next((one for one in (f"{source}.{alias.name}", source) if one in sources()), None)
                if found is not None:
                    yield found


def _floor(module: str) -> int:
    if module == "glidemq_async":
        return len(LAYERS) - 1
    return FLOORS[".".join(module.split(".")[:2])]


def test_the_walk_sees_the_library() -> None:
    assert {"glidemq_async", "glidemq_async.functions.callers", "glidemq_async.executors.thread"} <= sources().keys()
    assert "glidemq_async.storage.retry" in imports()["glidemq_async.storage.server"]
    assert "glidemq_async.failpoints" in imports()["glidemq_async.worker.runs"]


def test_every_module_has_a_layer() -> None:
    known = {".".join(name.split(".")[:2]) for name in sources()} - {"glidemq_async"}
    assert known == FLOORS.keys(), "give a new module its place in LAYERS, above"


def test_imports_run_downwards() -> None:
    upward = [
        f"{module} imports {imported}"
        for module, found in imports().items()
        for imported in sorted(found)
        if _floor(imported) > _floor(module)
    ]
    assert not upward, upward


def test_no_imports_run_in_a_circle() -> None:
    # A package's __init__ shows what lies in it, so it stands above its modules, which import each other by name.
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None


def test_the_worker_knows_no_executor() -> None:
    known = {"glidemq_async.executors.protocol", "glidemq_async.executors.registry"}
    for module, found in imports().items():
        if module.startswith("glidemq_async.worker"):
            assert {one for one in found if one.startswith("glidemq_async.executors")} <= known, module


def test_what_runs_apart_imports_nothing_of_the_library() -> None:
    assert imports()[ALONE] == frozenset()


def test_a_lua_file_uses_only_what_stands_above_it() -> None:
    texts = {name: (ROOT / "functions" / f"{name}.lua").read_text(encoding="utf-8") for name in FILES}
    owners = {name: number for number, name in enumerate(FILES) if f"\nlocal {name} = " in texts[name]}
    for number, name in enumerate(FILES):
        code = re.sub(r"--[^\n]*|'[^'\n]*'", "", texts[name])
        for other, place in owners.items():
            if place > number:
                assert not re.search(rf"(?<![\w.]){other}\.", code), f"{name}.lua uses {other}.lua, joined after it"
    assert len(owners) > 10


def test_no_file_is_too_long_to_read_in_one_sitting() -> None:
    paths = [*sources().values(), *(ROOT / "functions").glob("*.lua")]
    sizes = {str(path): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    assert len([name for name in sizes if name.endswith(".lua")]) > len(FILES)
    assert {name: size for name, size in sizes.items() if size > MOST_LINES} == {}
