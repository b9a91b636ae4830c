"""`glidemq demo` as a program: its output, its remains, and its exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from glidemq_async.demo.jobs.measure import is_flaky
from glidemq_async.demo.jobs.sources import find_sources
from tests.cli.commands import COMMAND, environment, glidemq, make_tree
from tests.support.servers import standalone

FILES = 150


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    make_tree(root, FILES)
    return root


def flaky_of(tree: Path) -> int:
    return sum(map(is_flaky, find_sources(tree).files))


def figures_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def assert_nothing_lost(figures: dict[str, Any], jobs: int) -> None:
    assert figures["jobs"] == figures["completed"] == jobs
    assert (figures["failed"], figures["lost"], figures["duplicates"], figures["strangers"]) == (0, 0, 0, 0)
    assert figures["events_missed"] == 0
    assert figures["check"] == []
    assert figures["clean"] is True


@pytest.mark.crash
def test_a_killed_worker_loses_nothing(tree: Path, tmp_path: Path) -> None:
    figures = figures_of(glidemq("demo", str(tree), "--json", temporary=tmp_path / "t"))
    assert_nothing_lost(figures, FILES + 1)
    assert figures["processes"] == 3
    assert 1 <= figures["recovered"] <= 4
    assert figures["stalls"] == figures["recovered"]
    assert figures["retries"] == flaky_of(tree) > 0
    assert figures["totals"] == {
        "size": figures["totals"]["size"],
        "lines": FILES * 362 + 1,
        "functions": FILES * 60,
        "classes": 0,
        "imports": FILES * 2,
        # for, if, elif, `and`, `or`, and a comprehension with its condition, in addition to the function itself.
        "complexity": FILES * 60 * 8,
        "measured": FILES,
        "unparsable": 1,
        "unreadable": 0,
    }
    assert len(figures["most_complex"]) == 10
    assert 0 < figures["latency"]["p50"] <= figures["latency"]["p99"] <= figures["seconds"]
    assert list((tmp_path / "t").iterdir()) == []


async def test_the_demonstration_deletes_its_queue_on_a_server(tree: Path, tmp_path: Path) -> None:
    async with standalone() as server:
        await server.command("SET", "not ours", "kept")
        done = await asyncio.to_thread(
            glidemq,
            *("demo", str(tree / "package_0"), "--json", "--no-kill", "--workers", "1", "--url", server.url),
            temporary=tmp_path / "t",
        )
        figures = figures_of(done)
        assert_nothing_lost(figures, FILES // 5)
        assert figures["processes"] == 1
        assert figures["stalls"] == 0
        assert await server.command("KEYS", "*") == [b"not ours"]


def test_the_demonstration_prints_plain_lines_without_a_terminal(tree: Path, tmp_path: Path) -> None:
    done = glidemq("demo", str(tree), "--no-kill", "-w", "1", "-c", "2", temporary=tmp_path / "t")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout
    lines = done.stdout.splitlines()
    jobs = FILES + 1
    assert any(f"{jobs}/{jobs} done, 0 active, 0 waiting" in line for line in lines)
    assert any("broken.py: " in line for line in lines)
    assert lines[-1].startswith(f"{jobs} jobs in ")
    assert lines[-1].endswith("0 recovered, 0 lost, 0 duplicates, self-check clean")


def test_the_demonstration_accepts_one_file(tmp_path: Path) -> None:
    file = tmp_path / "one.py"
    file.write_text("x = 1\n")
    assert_nothing_lost(figures_of(glidemq("demo", str(file), "--json", temporary=tmp_path / "t")), 1)


@pytest.mark.crash
def test_an_interrupt_stops_the_workers_and_cleans_up(tmp_path: Path) -> None:
    tree, temporary = tmp_path / "tree", tmp_path / "t"
    # Many more jobs than can run before the interrupt.
    make_tree(tree, 1_000)
    command = [*COMMAND, "demo", str(tree), "--no-kill"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(temporary)
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if " active" in line and " 0 active" not in line:
                break
        workers = children_of(process.pid)
        assert workers
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode == 130
    assert [pid for pid in workers if is_alive(pid)] == []
    assert list(temporary.iterdir()) == []


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in found.read_text().split()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/no/such/directory"], "does not exist"),
        ([".", "--url", "memory://"], "private to one process"),
        ([".", "--url", "gopher://there"], "not a storage URL"),
        ([".", "--workers", "0"], "--workers"),
    ],
)
def test_bad_arguments_are_refused_before_anything_starts(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = glidemq("demo", *arguments, temporary=tmp_path / "t")
    assert done.returncode == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())
    assert done.stdout == ""


def test_a_directory_without_python_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = glidemq("demo", str(tmp_path / "empty"), temporary=tmp_path / "t")
    assert done.returncode == 2
    assert "no Python file" in done.stderr
