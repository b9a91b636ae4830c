"""The example services, with the test clients of their frameworks."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
from aiohttp.test_utils import TestClient as AiohttpClient
from aiohttp.test_utils import TestServer
from fastapi.testclient import TestClient

from glidemq_async.testing import Harness

EXAMPLES = Path(__file__).parents[2] / "examples"
ORDER = {"number": 7, "item": "tea"}
SHIPPED = {"state": "completed", "result": "shipped tea"}

pytestmark = pytest.mark.skipif(
    not EXAMPLES.exists(), reason="the examples are not next to the tests; they run from a checkout"
)


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    return importlib.import_module(name)


def test_the_fastapi_service_ships_an_order_once(glidemq: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    service = example("fastapi_service", monkeypatch)
    glidemq.use(service.mq)
    with TestClient(service.app) as client:
        placed = [client.post("/orders", json=ORDER) for _ in range(2)]
        glidemq.sync.drain(service.mq)
        found, missing = client.get("/orders/order-7"), client.get("/orders/order-8")
    assert [reply.status_code for reply in placed] == [202, 202]
    assert [reply.json()["outcome"] for reply in placed] == ["added", "duplicate"]
    assert found.json() == SHIPPED
    assert missing.status_code == 404


async def test_the_aiohttp_service_ships_an_order_once(glidemq: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    service = example("aiohttp_service", monkeypatch)
    glidemq.use(service.mq)
    async with AiohttpClient(TestServer(service.make_app())) as client:
        placed = [await client.post("/orders", json=ORDER) for _ in range(2)]
        assert [reply.status for reply in placed] == [202, 202]
        assert [(await reply.json())["outcome"] for reply in placed] == ["added", "duplicate"]
        await glidemq.drain(service.mq)
        assert await (await client.get("/orders/order-7")).json() == SHIPPED
        assert (await client.get("/orders/order-8")).status == 404
