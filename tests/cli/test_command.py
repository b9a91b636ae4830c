"""The `glidemq` command around its subcommands."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.cli.commands import glidemq

WITHOUT = "import sys; sys.modules[{module!r}] = None; from glidemq_async.cli import main; main()"


@pytest.mark.smoke
def test_the_command_prints_its_version(tmp_path: Path) -> None:
    done = glidemq("--version", temporary=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"glidemq-async {version('glidemq-async')}\n")


def test_the_installed_script_is_the_same_command(tmp_path: Path) -> None:
    script = Path(sys.executable).parent / "glidemq"
    done = subprocess.run([str(script), "--version"], capture_output=True, text=True, check=False, timeout=30)
    assert done.stdout == glidemq("--version", temporary=tmp_path).stdout


def test_the_package_is_the_same_command_too() -> None:
    command = [sys.executable, "-m", "glidemq_async", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout) == (0, f"glidemq-async {version('glidemq-async')}\n")


def test_help_names_the_commands(tmp_path: Path) -> None:
    done = glidemq("--help", temporary=tmp_path)
    assert done.returncode == 0
    assert "demo" in done.stdout


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("glidemq_async", {"asyncio", "msgpack", "glidemq_async.errors"}),
        ("glidemq_async.cli.worker.process", {"redis", "croniter", "typer", "rich", "watchfiles", "anyio._backends"}),
        ("glidemq_async.cli.app", {"redis", "asyncio", "http", "importlib.metadata", "rich.console", "watchfiles"}),
        (
            "glidemq_async.cli.worker.supervised",
            {"glidemq_async.client.queue_client", "msgpack", "hiredis", "uvloop", "watchfiles"},
        ),
        (
            "glidemq_async.tasks.app",
            {
                "redis",
                "croniter",
                "anyio._backends",
                "glidemq_async.storage.redis.cluster",
                "glidemq_async.executors.subprocess",
            },
        ),
    ],
)
def test_a_start_imports_only_the_needed_modules(module: str, unwanted: set[str]) -> None:
    program = f"import {module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert not unwanted & set(done.stdout.split())


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_extra_the_command_prints_the_remedy(module: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(module=module)],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 2
    remedy = "run pip install 'glidemq-async[cli]'"
    assert done.stderr == f"glidemq needs typer and rich, but {module} is not installed; {remedy}\n"
