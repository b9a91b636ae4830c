"""`glidemq doctor` on servers that refuse commands, as managed servers do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from glidemq_async import Queue
from glidemq_async.storage.redis.server_roles import rules_of
from tests.cli.shell import Shell
from tests.support.servers import Server, redis7_binary, standalone

EVERYTHING = ("~*", "&*", "+@all")


async def user(server: Server, rules: Sequence[str]) -> str:
    await server.command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rules)
    return f"redis://app:secret@127.0.0.1:{server.port}"


async def examine(url: str, directory: Path) -> dict[str, dict[str, Any]]:
    """Return the findings about the server by name."""
    done = await Shell(url, directory / "t").run("doctor", "--json")
    found = {check["name"].rpartition(": ")[2]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == (1 if any(check["status"] == "fail" for check in found.values()) else 0)
    return found


@pytest.fixture(params=[False, True], ids=["embedded", "redis7"])
def binary(request: pytest.FixtureRequest) -> str | None:
    if request.param and redis7_binary() is None:
        pytest.skip("no redis-server on the PATH: install Debian's redis-server, or set GLIDEMQ_TEST_REDIS7")
    return redis7_binary() if request.param else None


REFUSALS = {
    # What the server refuses, whether the library is loaded before, and the checks that must name it.
    "config": (
        ("-config",),
        True,
        {"maxmemory-policy": ("ok", "noeviction"), "persistence": ("warn", "settings cannot")},
    ),
    "info": (("-info",), True, {"version": ("warn", "INFO is refused"), "functions": ("ok", "the same")}),
    "time": (("-time",), True, {"clock": ("warn", "TIME is refused")}),
    "listing": (("-function",), True, {"functions": ("ok", "the same"), "loading functions": ("ok", "not needed now")}),
    "loading": (
        ("-function",),
        False,
        {"functions": ("ok", "not loaded yet"), "loading functions": ("fail", "NOPERM")},
    ),
    "calling": (("-fcall_ro", "-function"), True, {"functions": ("fail", "NOPERM")}),
    "publishing": (("-spublish",), True, {"channels": ("ok", "may not publish")}),
}


async def test_each_refused_command_is_reported(binary: str | None, tmp_path: Path) -> None:
    async with standalone(binary=binary) as server:
        for name, (rules, loaded, expected) in REFUSALS.items():
            await server.command("FUNCTION", "FLUSH")
            if loaded:
                async with Queue[int, int]("q", server.url):
                    pass
            found = await examine(await user(server, [*EVERYTHING, *rules]), tmp_path)
            for check, (status, text) in expected.items():
                assert (found[check]["status"], text in found[check]["detail"]) == (status, True), (name, found[check])
            # The other checks are made all the same.
            assert {"functions", "loading functions", "channels", "clock", "latency"} <= found.keys()


async def test_a_server_without_functions_or_channels_is_reported(binary: str | None, tmp_path: Path) -> None:
    missing = [
        word for name in ("FUNCTION", "FCALL", "FCALL_RO", "SPUBLISH") for word in ("--rename-command", name, "")
    ]
    async with standalone(*missing, binary=binary) as server:
        found = await examine(server.url, tmp_path)
    assert (found["functions"]["status"], found["functions"]["detail"]) == ("fail", "the server has no functions")
    assert found["loading functions"]["status"] == "fail"
    assert found["channels"]["status"] == "warn"


async def test_the_policy_of_a_full_memory_is_read_from_info_where_config_is_refused(
    binary: str | None, tmp_path: Path
) -> None:
    async with standalone("--maxmemory", "64mb", "--maxmemory-policy", "volatile-lru", binary=binary) as server:
        async with Queue[int, int]("q", server.url):
            pass
        found = await examine(await user(server, [*EVERYTHING, "-config"]), tmp_path)
    policy, persistence = found["maxmemory-policy"], found["persistence"]
    assert (policy["status"], policy["detail"]) == ("fail", "volatile-lru")
    assert "set it to noeviction" in policy["advice"]
    assert persistence["status"] == "warn"
    assert "no append-only file" in persistence["detail"]


async def test_a_replica_is_reported(binary: str | None, tmp_path: Path) -> None:
    async with standalone(binary=binary) as server, standalone(binary=binary, replica_of=server) as replica:
        found = await examine(replica.url, tmp_path)
    assert (found["role"]["status"], found["role"]["detail"]) == ("fail", "a replica")
    assert "cluster" not in found


async def test_a_node_of_a_cluster_behind_a_url_of_one_server_is_reported(binary: str | None, tmp_path: Path) -> None:
    async with standalone("--cluster-enabled", "yes", binary=binary) as server:
        found = await examine(server.url, tmp_path)
    assert (found["cluster"]["status"], found["cluster"]["advice"]) == (
        "warn",
        "use a redis+cluster:// or rediss+cluster:// URL",
    )


async def test_a_worker_of_least_rights_has_no_finding(binary: str | None, tmp_path: Path) -> None:
    async with standalone("--appendonly", "yes", binary=binary) as server:
        async with Queue[int, int]("q", server.url):
            pass
        found = await examine(await user(server, rules_of("worker")), tmp_path)
    names = ("version", "role", "memory", "persistence", "functions", "loading functions", "channels", "clock")
    assert {name: found[name]["status"] for name in names} == dict.fromkeys(names, "ok")
