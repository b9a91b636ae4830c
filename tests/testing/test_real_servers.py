"""Under pytest an unmoved app refuses to use real servers. A program can require a URL."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from glidemq_async import GlideMQ, Queue, StorageUnavailable
from glidemq_async.storage import urls
from tests.support.servers import Server, standalone

SERVICE = """
from glidemq_async import GlideMQ

mq = GlideMQ()


@mq.task
async def send(to: str) -> str:
    return f"sent to {to}"
"""
TESTS = """
import pytest
from service import mq, send

pytestmark = pytest.mark.asyncio


async def test_forgets_to_move():
    await send.add("ada")


async def test_opens_it():
    async with mq:
        pass


def test_plain():
    send.sync.add("ada")


async def test_moves(glidemq):
    glidemq.use(mq)
    await send.add("ada")
    (job,) = await glidemq.drain(mq)
    assert job.return_value == "sent to ada"


@pytest.mark.glidemq_real_server
async def test_wants_it():
    await send.add("grace")
    await mq.close()
"""


def run_pytest(folder: Path, url: str, *more: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rf", *more, str(folder)]
    variables = {**os.environ, "GLIDEMQ_URL": url, "XDG_STATE_HOME": str(folder / "state")}
    return subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True, timeout=50, check=False)


@pytest.fixture
def service(tmp_path: Path) -> Path:
    (tmp_path / "service.py").write_text(SERVICE)
    (tmp_path / "test_service.py").write_text(TESTS)
    return tmp_path


async def names_of(server: Server) -> list[str]:
    async with Queue[dict[str, object], str]("default", server.url) as queue:
        return [str(job.data["a"]) for job in await queue.get_jobs("waiting")]


async def test_an_unmoved_app_refuses_to_connect(service: Path) -> None:
    async with standalone() as server:
        done = run_pytest(service, server.url)
        assert "3 failed, 2 passed" in done.stdout, done.stdout
        assert done.stdout.count(f"RuntimeError: the app would connect to {server.url} in a test") >= 3
        for remedy in ("glidemq.use(mq)", "glidemq.eager(mq)", "glidemq_real_server"):
            assert remedy in done.stdout
        assert await names_of(server) == ["['grace']"]


async def test_the_embedded_default_counts_as_a_real_server(service: Path) -> None:
    done = run_pytest(service, "", "-k", "forgets")
    assert "1 failed" in done.stdout, done.stdout
    assert "the app would connect to file://" in done.stdout
    assert not (service / "state").exists()


async def test_a_setting_permits_real_servers_for_all_tests(service: Path) -> None:
    (service / "pytest.ini").write_text("[pytest]\nglidemq_real_servers = true\n")
    async with standalone() as server:
        done = run_pytest(service, server.url, "-k", "forgets")
        assert "1 passed" in done.stdout, done.stdout
        assert await names_of(server) == ["['ada']"]


@pytest.mark.parametrize("where", ["environment", "app"])
async def test_a_program_can_require_a_url(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    monkeypatch.delenv("GLIDEMQ_URL", raising=False)
    monkeypatch.setenv("GLIDEMQ_REQUIRE_URL", "1" if where == "environment" else "0")
    mq = GlideMQ(require_url=where == "app")

    @mq.task
    async def send(to: str) -> None: ...

    cause = r"\$GLIDEMQ_REQUIRE_URL forbids" if where == "environment" else "require_url=True forbids"
    with pytest.raises(StorageUnavailable, match=cause):
        await send.add("ada")
    await mq.close()
    if where == "environment":
        with pytest.raises(StorageUnavailable, match="GLIDEMQ_URL is not set"):
            await Queue[object, object]("q").add("n")
        monkeypatch.setenv("GLIDEMQ_REQUIRE_URL", "perhaps")
        with pytest.raises(ValueError, match="must be 1 or 0, not 'perhaps'"):
            Queue[object, object]("q")
    monkeypatch.setenv("GLIDEMQ_URL", "memory://")
    async with mq:
        await send.add("ada")


def test_the_log_names_the_directory_of_the_embedded_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("GLIDEMQ_URL", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with caplog.at_level(logging.INFO, "glidemq_async"):
        for _ in range(2):
            assert urls.open_storage().url == (tmp_path / "glidemq").as_uri()
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f"$GLIDEMQ_URL is not set: using the embedded server with its data at {(tmp_path / 'glidemq').as_uri()}"
    ]
