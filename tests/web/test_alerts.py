"""Alert rules and episodes over HTTP and as pages."""

from __future__ import annotations

from typing import Any

import pytest

from glidemq_async import Queue
from glidemq_async.ops import Ops
from glidemq_async.ops.alerts.evaluator import Evaluator
from glidemq_async.storage import Storage
from tests.ops.receiver import receiving
from tests.web.clients import serving, user

pytestmark = pytest.mark.only_on("memory")


async def test_a_rule_is_set_tested_and_removed_over_http(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage), serving(storage, user("admin")) as client, receiving() as receiver:
        sent = {"condition": "oldest age > 60s", "queues": [name], "webhooks": [receiver.url]}
        reply = await client.put("/api/v1/alerts/slow", json=sent, headers={"X-Reason": "on call"})
        rule = reply.json()["rule"]
        assert (rule["condition"], rule["webhooks"]) == ("oldest_age > 1m for 1m", [receiver.url[:-18] + "/…"])
        assert reply.json()["secret"].startswith("whsec_")
        tested = await client.post("/api/v1/alerts/slow/test", json={})
        assert [each["status"] for each in tested.json()["replies"]] == [204]
        assert (await receiver.next()).json["type"] == "alert.test"
        wrong = await client.put("/api/v1/alerts/slow", json={"condition": "oldest_agge > 60s"})
        assert (wrong.status_code, "did you mean 'oldest_age'?" in wrong.json()["detail"]) == (422, True)
        refused = await client.put("/api/v1/alerts/slow", json={**sent, "webhooks": ["ftp://x"], "secret": "sesame"})
        assert (refused.status_code, "sesame" in refused.text) == (422, False)
        assert (await client.get("/api/v1/alerts")).json()["rules"] == [rule]
        assert (await client.delete("/api/v1/alerts/slow")).status_code == 200
        missing = await client.delete("/api/v1/alerts/slow")
        assert (missing.status_code, missing.json()["type"]) == (404, "urn:glidemq:error:alert-not-found")
        async with Ops(storage) as ops:
            lines = [(line.action, line.source, line.reason) for line in (await ops.audit.read()).lines]
        assert lines[-2:] == [("test alert", "http", ""), ("set alert", "http", "on call")]


async def test_users_see_the_episodes_of_their_queues(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage) as queue, Ops(storage) as ops:
        await queue.add("n")
        await ops.set_alert("busy", "waiting > 0 for 0s")
        await ops.set_alert("full", "memory > 1MB for 0s")
        assert await Evaluator(ops._connections).look() == 2  # pyright: ignore[reportPrivateUsage]
        for queues, seen in (("*", {"busy", "full"}), (name, {"busy"}), ("other", set[str]())):
            async with serving(storage, user("viewer", queues=(queues,))) as client:
                found = (await client.get("/api/v1/episodes?open=true")).json()["episodes"]
                assert {each["rule"] for each in found} == seen
                overview = (await client.get("/api/v1/overview")).json()
                assert {each["rule"] for each in overview["alerts"]} == seen
                assert (overview["verdict"] == "ok") is not bool(seen)
                page = (await client.get("/alerts")).text
                assert {rule for rule in ("busy", "full") if rule in page} == seen


async def test_a_rule_is_set_and_changed_by_forms(storage: Storage, name: str) -> None:
    async with Queue[Any, Any](name, storage), Ops(storage) as ops, serving(storage, user("admin")) as client:
        form = await client.get("/change/set_alert")
        token = form.text.partition('name="form_token" value="')[2].partition('"')[0]
        sent = {"form_token": token, "rule": "slow", "condition": "waiting > 5", "queues": f"{name} other*"}
        sent |= {"webhooks": "https://hooks.example.com/a/b", "format": "json", "note": "mail"}
        reply = await client.post("/change/set_alert", data=sent)
        assert reply.status_code == 303
        shown = await client.get("/alerts")
        assert "whsec_" in shown.text
        assert "https://hooks.example.com/…" in shown.text
        assert "No process has evaluated the rules yet" in shown.text
        form = await client.get("/change/set_alert?alert=slow")
        assert all(f'value="{value}"' in form.text for value in ("waiting &gt; 5 for 1m", f"{name} other*", "mail"))
        changed = {**sent, "condition": "waiting > 9", "webhooks": ""}
        assert (await client.post("/change/set_alert", data=changed)).status_code == 303
        [rule] = (await ops.alerts()).rules
        assert (rule.condition, rule.webhooks) == ("waiting > 9 for 1m", ("https://hooks.example.com/…",))
        bad = await client.post("/change/set_alert", data={**changed, "condition": "wating > 9"})
        assert (bad.status_code, "did you mean &#39;waiting&#39;?" in bad.text) == (422, True)
        gone = await client.post("/change/remove_alert", data={"form_token": token, "alert": "slow"})
        assert gone.status_code == 303
        assert (await ops.alerts()).rules == ()
