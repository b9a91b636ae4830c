"""The checks of a server: its version, and the settings and figures that matter for the safety of jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from statistics import median
from typing import Final

from glidemq_async.cli.doctor.check import Check, fail, ok, warn
from glidemq_async.cli.doctor.library import check_library
from glidemq_async.cli.exits import CommandError
from glidemq_async.cli.targets import ASK_SECONDS, ask
from glidemq_async.storage.redis.library import OLDEST_REDIS, OLDEST_VALKEY, pack
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


async def check_server(wire: Wire, *, ephemeral: bool) -> AsyncIterator[Check]:
    """Check one server. `ephemeral` is True for a server without persistence by intention, like memory://."""
    info = await _info(wire)
    settings = await _settings(wire)
    checks: list[Check] = [
        _version(info),
        _role(info),
        _eviction(settings),
        *_memory(info),
        *(() if ephemeral else _persistence(info, settings)),
        await _library(wire),
        await _clock(wire),
        await _latency(wire),
    ]
    for check in checks:
        yield replace(check, name=f"{wire.where}: {check.name}")


async def _info(wire: Wire) -> dict[str, str]:
    lines = as_text(await ask(wire, "INFO")).splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: value for name, colon, value in pairs if colon}


async def _settings(wire: Wire) -> dict[str, str]:
    """Return the settings. Settings that the user may not read are missing."""
    found: dict[str, str] = {}
    for name in _SETTINGS:
        # Not with `ask`, which raises when the server refuses a command: managed servers often forbid CONFIG, and the
        # other checks must still run.
        reply = await wire.send(pack("CONFIG", "GET", name), asyncio.get_running_loop().time() + ASK_SECONDS)
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


def _eviction(settings: Mapping[str, str]) -> Check:
    policy = settings.get("maxmemory-policy")
    if policy is None:
        return warn("maxmemory-policy", "cannot be read", "check on the server that it is noeviction")
    if policy == "noeviction":
        return ok("maxmemory-policy", policy)
    advice = "set it to noeviction; other policies delete data of queues when memory is short"
    if settings.get("maxmemory") == "0":
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


async def _library(wire: Wire) -> Check:
    try:
        return await check_library(wire)
    except CommandError as error:
        return fail("functions", str(error), "allow FUNCTION, FCALL and FCALL_RO to this user")


async def _clock(wire: Wire) -> Check:
    # The server's reply is compared with the middle of the call, so a slow connection does not look like a difference
    # of the clocks.
    before = time.time()
    seconds, micros = as_list(await ask(wire, "TIME")) or [b"0", b"0"]
    after = time.time()
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
