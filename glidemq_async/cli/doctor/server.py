"""The checks of a server: its version, and the settings and figures that matter for the safety of jobs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import Final

from glidemq_async.cli.doctor.abilities import attempt, check_channels, check_loading, is_refused, is_unknown
from glidemq_async.cli.doctor.check import Check, fail, ok, warn
from glidemq_async.cli.doctor.library import check_library
from glidemq_async.cli.targets import ask
from glidemq_async.storage.redis.library import OLDEST_REDIS, OLDEST_VALKEY
from glidemq_async.storage.redis.wire import Reply, Wire, as_list, as_text

PINGS: Final = 20
SLOW_SECONDS: Final = 0.010
"""Seconds of median round trip above which a warning appears, because every claim costs one round trip."""
SKEW_SECONDS: Final = 1.0
"""Seconds of clock difference above which a warning appears, because delays use the server's clock."""
FULL: Final = 0.9
"""The share of used memory above which a warning appears."""
_SETTINGS: Final = ("maxmemory", "maxmemory-policy", "appendonly", "appendfsync", "save")
_UNKNOWN: Final = "unknown"


async def check_server(wire: Wire, *, ephemeral: bool, is_cluster: bool) -> AsyncIterator[Check]:
    """Check one server.

    `ephemeral` is True for a server without persistence by intention, like memory://. `is_cluster` is True if the URL
    is of a cluster.
    """
    info = await _info(wire)
    settings = await _settings(wire)
    library = await check_library(wire)
    checks: list[Check] = [
        *(_figures(info, settings, ephemeral=ephemeral) if info else [_UNREADABLE]),
        *([] if is_cluster else _cluster(info)),
        library.check,
        await check_loading(wire, needed=library.must_be_loaded),
        await check_channels(wire),
        await _clock(wire),
        await _latency(wire),
    ]
    for check in checks:
        yield replace(check, name=f"{wire.where}: {check.name}")


async def _info(wire: Wire) -> dict[str, str]:
    """Return the server's INFO, {} if this user may not read it."""
    reply = await attempt(wire, "INFO")
    if is_refused(reply) or is_unknown(reply):
        return {}
    # Waits while the server loads its data.
    lines = as_text(await ask(wire, "INFO") if isinstance(reply, Exception) else reply).splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: value for name, colon, value in pairs if colon}


_UNREADABLE: Final = warn(
    "version", "INFO is refused, so version, role, memory and persistence cannot be read", "allow INFO to this user"
)


def _figures(info: Mapping[str, str], settings: Mapping[str, str], *, ephemeral: bool) -> Iterator[Check]:
    yield _version(info)
    yield _role(info)
    yield _eviction(info, settings)
    yield from _memory(info)
    if not ephemeral:
        yield from _persistence(info, settings)


async def _settings(wire: Wire) -> dict[str, str]:
    """Return the settings. Settings that the user may not read are missing."""
    found: dict[str, str] = {}
    for name in _SETTINGS:
        # Not with `ask`, which raises when the server refuses a command: managed servers often forbid CONFIG, and the
        # other checks must still run.
        reply = await attempt(wire, "CONFIG", "GET", name)
        values: list[Reply] = as_list(reply) or []
        if len(values) == 2:
            found[name] = as_text(values[1])
    return found


def _version(info: Mapping[str, str]) -> Check:
    is_valkey = "valkey_version" in info
    product, oldest = ("Valkey", OLDEST_VALKEY) if is_valkey else ("Redis", OLDEST_REDIS)
    text = info.get("valkey_version" if is_valkey else "redis_version", "")
    version = f"{product} {text or _UNKNOWN}, {info.get('redis_mode') or info.get('server_mode') or 'standalone'}"
    numbers = tuple(int(part) for part in text.split(".")[:2] if part.isdecimal())
    if numbers and numbers < oldest:
        return fail("version", version, "use Redis 7.0, Valkey 7.2 or newer")
    return ok("version", version)


def _role(info: Mapping[str, str]) -> Check:
    role, replicas = info.get("role", _UNKNOWN), info.get("connected_slaves", "0")
    if role == "slave":
        return fail("role", "a replica", "connect to its primary")
    return ok("role", f"primary with {replicas} replica{'' if replicas == '1' else 's'}")


def _cluster(info: Mapping[str, str]) -> Iterator[Check]:
    """Check a server whose URL is not of a cluster."""
    if info.get("cluster_enabled") == "1":
        detail = "the server is a node of a cluster, and calls to queues of other nodes fail"
        yield warn("cluster", detail, "use a redis+cluster:// or rediss+cluster:// URL")


def _eviction(info: Mapping[str, str], settings: Mapping[str, str]) -> Check:
    # INFO has the policy too, also where CONFIG is forbidden.
    policy = settings.get("maxmemory-policy") or info.get("maxmemory_policy")
    if policy is None:
        return warn("maxmemory-policy", "cannot be read", "check on the server that it is noeviction")
    if policy == "noeviction":
        return ok("maxmemory-policy", policy)
    advice = "set it to noeviction; other policies delete data of queues when memory is short"
    if (settings.get("maxmemory") or info.get("maxmemory")) == "0":
        return warn("maxmemory-policy", f"{policy}, without effect while maxmemory is 0", advice)
    return fail("maxmemory-policy", policy, advice)


def _memory(info: Mapping[str, str]) -> Iterator[Check]:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    size = f"{used / 2**20:.1f} MiB" + (f" of {most / 2**20:.1f} MiB" if most else ", no limit set")
    if most and used > FULL * most:
        yield warn("memory", size, "add raises QueueFull when memory is full; raise maxmemory or keep fewer ended jobs")
    else:
        yield ok("memory", size)


def _append_only(info: Mapping[str, str], fsync: str) -> Check:
    value = f"append-only file, fsync {fsync}"
    if info.get("aof_last_write_status", "ok") != "ok":
        return fail("persistence", f"{value}, its last write failed", "check the disk and the server's log")
    if fsync == "no":
        return warn("persistence", value, "a power failure can lose half a minute; set appendfsync everysec")
    return ok("persistence", value)


def _persistence(info: Mapping[str, str], settings: Mapping[str, str]) -> Iterator[Check]:
    # INFO first: it can be read where CONFIG is forbidden.
    if info.get("aof_enabled", "1" if settings.get("appendonly") == "yes" else "0") == "1":
        yield _append_only(info, settings.get("appendfsync", _UNKNOWN))
        return
    snapshots = settings.get("save")
    if snapshots is None:
        yield warn("persistence", "no append-only file; the snapshot settings cannot be read", _WITHOUT_FILE)
    elif snapshots:
        yield warn("persistence", f"snapshots only (save {snapshots})", _WITHOUT_FILE)
    else:
        yield warn("persistence", "none", "a restart of the server loses every job; set appendonly yes")
    if info.get("rdb_last_bgsave_status", "ok") != "ok":
        yield fail("snapshots", "the last one failed", "check the disk and the server's log")


_WITHOUT_FILE: Final = "a crash of the server loses the changes since the last snapshot; set appendonly yes"


async def _clock(wire: Wire) -> Check:
    # The server's reply is compared with the middle of the call, so a slow connection does not look like a difference
    # of the clocks.
    before = time.time()
    reply = as_list(await attempt(wire, "TIME"))
    after = time.time()
    if reply is None:
        return warn("clock", "TIME is refused, so the clocks cannot be compared", "allow TIME to this user")
    seconds, micros = reply
    skew = int(as_text(seconds)) + int(as_text(micros)) / 1e6 - (before + after) / 2
    value = f"the server is {abs(skew) * 1000:.1f} ms {'ahead' if skew > 0 else 'behind'}"
    if abs(skew) > SKEW_SECONDS:
        return warn("clock", value, "delays use the server's clock, `at=` and cron use this one; synchronize both")
    return ok("clock", value)


async def _latency(wire: Wire) -> Check:
    times: list[float] = []
    for _ in range(PINGS):
        began = time.perf_counter()
        await ask(wire, "PING")
        times.append(time.perf_counter() - began)
    value = f"round trip {median(times) * 1000:.2f} ms, {max(times) * 1000:.2f} ms the slowest of {PINGS} pings"
    # The median decides, because a single slow ping says nothing about the connection. The report shows the slowest one
    # too.
    if median(times) > SLOW_SECONDS:
        return warn("latency", value, "run the workers closer to the server")
    return ok("latency", value)
