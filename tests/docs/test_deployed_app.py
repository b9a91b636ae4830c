"""The app of deploy/ runs with the users of deploy/users.acl: each part with its own one."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import httpx2
import pytest

from tests.cli.shell import Shell
from tests.docs.blocks import ROOT
from tests.support.servers import Server, standalone

DEPLOY = ROOT / "deploy"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with standalone("--aclfile", str(DEPLOY / "users.acl")) as running:
        yield running


def service(folder: Path) -> ModuleType:
    """Import the app. Its workers take a free port for their metrics."""
    path = folder / "shop.py"
    path.write_text((DEPLOY / "shop.py").read_text().replace("port=9100", "port=0"))
    spec = importlib.util.spec_from_file_location("shop", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_a_job_passes_through_the_deployed_parts(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shell(role: str) -> Shell:
        return Shell(f"redis://{role}:secret@127.0.0.1:{server.port}", tmp_path / "t", processes=role == "worker")

    loaded = await shell("deployer").run("functions", "--load")
    assert loaded.returncode == 0, loaded.stderr
    monkeypatch.setenv("GLIDEMQ_URL", f"redis://producer:secret@127.0.0.1:{server.port}")
    shop = service(tmp_path)
    transport = httpx2.ASGITransport(app=shop.app)
    async with (
        shop.app.router.lifespan_context(shop.app),
        httpx2.AsyncClient(transport=transport, base_url="http://shop") as client,
    ):
        assert (await client.get("/health")).status_code == 200
        placed = await client.post("/orders", params={"item": "a book"})
        assert placed.status_code == 202
        metrics = (await client.get("/metrics")).text
        assert 'glidemq_jobs{queue="orders",state="waiting"} 1.0' in metrics
        assert 'glidemq_workers{queue="orders"} 0.0' in metrics
    # The command of the unit, without its fixed port, and until the queue is empty.
    ran = await shell("worker").run("worker", "shop:mq", "--app-dir", str(tmp_path), "--until-empty")
    assert ran.returncode == 0, ran.stderr
    [row] = json.loads((await shell("operator").run("queues", "--json")).stdout)["queues"]
    assert (row["name"], row["counts"]["completed"]) == ("orders", 1)
    seen = json.loads((await shell("viewer").run("job", "orders", placed.json()["job"], "--json")).stdout)
    assert seen["return_value"] == "shipped a book"
    refused = await shell("viewer").run("remove", "orders", placed.json()["job"])
    assert refused.returncode != 0
    assert "+fcall" in refused.stderr
