"""The files of docs/project-layout.md, written as the page shows them, are a program that runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from glidemq_async import Queue
from tests.cli.commands import environment
from tests.docs.blocks import ROOT, blocks
from tests.support.servers import standalone


async def test_the_page_is_a_program(tmp_path: Path) -> None:
    for block in blocks(ROOT / "docs" / "project-layout.md"):
        if block.file is not None:
            path = tmp_path / block.file
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text)
    async with standalone() as server:
        variables = environment(tmp_path / "t") | {"GLIDEMQ_URL": server.url}

        def run(*words: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=50, check=False
            )

        added = run(sys.executable, "-c", ADD)
        assert added.returncode == 0, added.stderr
        burst = ("worker", "--until-empty")
        for _ in range(2):  # the first burst may have found the emails empty before the report added one
            worked = run(sys.executable, "-m", "glidemq_async.cli", *burst, "shop.mq:mq")
            assert worked.returncode == 0, worked.stderr
        async with (
            Queue[object, str]("emails", server.url) as emails,
            Queue[object, str]("reports", server.url) as reports,
        ):
            assert [job.return_value for job in await reports.get_jobs("completed")] == ["month 5"]
            assert [job.return_value for job in await emails.get_jobs("completed")] == ["sent to boss@example.com"]


ADD = """
import asyncio

from shop.mq import mq
from shop.reports import month


async def main():
    async with mq:
        await month.add(5)


asyncio.run(main())
"""
