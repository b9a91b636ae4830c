"""`memory://` is refused where it could only lose work, and works where one process does everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.running import APP, worker
from tests.cli.shell import Shell

TASKS = """
from glidemq_async import GlideMQ

mq = GlideMQ()
mq.task(print, name="print")
"""


@pytest.mark.parametrize("options", [(), ("--app", "jobs:mq")], ids=["queue", "task"])
async def test_a_job_is_not_added_to_a_store_that_ends_with_the_command(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    (tmp_path / "jobs.py").write_text(TASKS)
    shell = Shell("memory://", tmp_path / "t", processes=True)
    done = await shell.run("add", "default", "print", *options, "--app-dir", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert (
        "memory:// is visible to one process only, and the job would be lost at the end of this command; use a"
        in done.stderr
    )


@pytest.mark.parametrize("text", [APP, TASKS], ids=["worker", "app"])
async def test_several_processes_with_private_stores_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "jobs.py").write_text(text)
    async with worker("-p", "2", cwd=tmp_path, url="memory://") as running:
        assert await running.code() == 2
        said = [str(line["message"]) for line in running.lines]
        assert any("each of 2 would have a separate store" in message for message in said)


@pytest.mark.parametrize("options", [(), ("-p", "1")], ids=["alone", "supervised"])
async def test_one_process_may_have_a_private_store(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "jobs.py").write_text(TASKS)
    async with worker("--until-empty", *options, cwd=tmp_path, url="memory://") as running:
        assert await running.code() == 0
