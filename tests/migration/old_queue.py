"""A queue of layout 1, which a test builds through the functions of that version (layout1.lua)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import msgpack

from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Arg, Wait, texts
from glidemq_async.storage.redis.connections import dial
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.wire import ReplyError, Wire
from tests.support.stores import RunningStore

LIBRARY = "glidemq_async_v1"
LOCK_MS = 100_000
_PER_CALL = 500
_SECONDS = 60


@cache
def layout1() -> str:
    """Return the text of the function library of layout 1."""
    return Path(__file__).with_name("layout1.lua").read_text(encoding="utf-8")


class OldJob(NamedTuple):
    """A job to add: its options in the form of `addJob`."""

    data: object
    id: str = ""
    opts: bytes = b""
    extra: bytes = b""
    name: str = "n"


class OldLease(NamedTuple):
    """The lease of a job that a worker of layout 1 has claimed."""

    id: str
    token: str


class Ask(Protocol):
    """Runs a command on the server of a queue."""

    async def __call__(self, *words: Arg) -> object:
        """Return the reply. Raises the error of the server."""
        ...


def _through(wire: Wire) -> Ask:
    async def ask(*words: Arg) -> object:
        reply = await wire.send(pack(*words), asyncio.get_running_loop().time() + _SECONDS)
        if isinstance(reply, Exception):
            raise reply
        return reply

    return ask


def options(**given: object) -> bytes:
    """Return the options of an add."""
    return msgpack.packb(given)


class OldStore:
    """Calls the functions of layout 1 on the primary of one queue."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        """Runs a command. Raises the error of the server."""

    async def call(
        self,
        function: str,
        key: str,
        args: Sequence[Arg],
        *,
        readonly: bool = False,
        timeout: float | None = None,
        wait: Wait = "default",
        messages_first: bool = False,
    ) -> object:
        """Call a function of layout 1."""
        return await self.ask("FCALL", f"{LIBRARY}_{function}", 1, key, *args)


class OldQueue:
    """A queue of layout 1. Calls whose arguments are the same in both versions go through `functions`."""

    def __init__(self, store: OldStore, name: str) -> None:
        self.store = store
        self.name = name
        self.base = f"glide:{{{name}}}"
        self.functions = Functions(store, self.base)
        self._calls = 0

    async def call(self, function: str, *args: Arg) -> object:
        """Make a numbered call with a channel that no other call uses."""
        self._calls += 1
        return await self.store.call(function, self.base, [f"old-{id(self)}-{self._calls}", 1, *args])

    async def add(self, jobs: Iterable[OldJob]) -> list[str]:
        """Add jobs and return their ids."""
        rest, ids = list(jobs), list[str]()
        while rest:
            args: list[Arg] = []
            for job in rest[:_PER_CALL]:
                args += [job.id, job.name, msgpack.packb(job.data), job.opts, job.extra]
            n = len(args) // 5
            reply = await self.call("addJob", n, *args, self.functions.caller.incarnation)
            _, first, listed, _, added = cast("tuple[int, bytes, list[bytes], object, int]", reply)
            generated = iter(texts(listed) or map(str, count(int(first or 0))))
            ids += [job.id or next(generated) for job in rest[:added]]
            rest = rest[added:]
        return ids

    async def claim(self, consumer: str, most: int, lock_ms: int = LOCK_MS) -> list[OldLease]:
        """Claim jobs, as many as the queue has but at most `most`."""
        leases: list[OldLease] = []
        while len(leases) < most:
            slots = min(most - len(leases), _PER_CALL)
            args: list[Arg] = [consumer, slots, lock_ms, "u", "0 0", 0, self.functions.caller.incarnation]
            reply = cast("list[object]", await self.call("settleAndClaim", *args))
            jobs = cast("list[bytes]", reply[2])
            if not jobs:
                break
            leases += [OldLease(jobs[i].decode(), jobs[i + 1].decode()) for i in range(0, len(jobs), 7)]
        return leases

    async def settle(
        self, consumer: str, leases: Sequence[OldLease], code: str = "c", payload: bytes = b"\xc0", option: str = ""
    ) -> None:
        """Settle runs with one outcome."""
        rest = list(leases)
        while rest:
            runs: list[Arg] = []
            for lease in rest[:_PER_CALL]:
                runs += [code, lease.id, lease.token, payload, option]
            args: list[Arg] = [consumer, 0, LOCK_MS, "u", "0 0", len(runs) // 5, *runs, ""]
            reply = cast("list[object]", await self.call("settleAndClaim", *args))
            assert reply[1] == [], reply[1]
            rest = rest[cast("int", reply[7]) :]

    async def sweep(self) -> set[str]:
        """Sweep as after a long time without sweeps, and return the ids of the recovered jobs."""
        recovered: set[str] = set()
        for _ in range(2):
            more = 1
            while more:
                args: list[Arg] = [3, 0, 10**9, 1]
                more, ids, *_ = cast("tuple[int, list[bytes], object]", await self.call("sweep", *args))
                recovered |= set(texts(ids))
            await self.store.ask("HSET", f"{self.base}:meta", "settled_since", 1)
        return recovered

    async def age(self, consumer: str, leases: Iterable[OldLease], ms: int) -> None:
        """Let leases age as if their worker had died."""
        for lease in leases:
            stream = "stream" if lease.token[0] == "s" else "lane"
            await self.store.ask(
                "XCLAIM", f"{self.base}:{stream}", "workers", consumer, 0, lease.token[1:], "IDLE", ms, "JUSTID"
            )


@asynccontextmanager
async def layout1_functions(store: RunningStore) -> AsyncGenerator[None]:
    """Load the functions of layout 1 on every primary, and delete them at the end."""
    for reply in await store.command("FUNCTION", "LOAD", "REPLACE", layout1()):
        assert reply == LIBRARY.encode(), reply
    try:
        yield
    finally:
        await store.command("FUNCTION", "DELETE", LIBRARY)


@asynccontextmanager
async def old_queue(store: RunningStore, name: str) -> AsyncGenerator[OldQueue]:
    """Create a queue with the functions of layout 1, which are loaded."""
    wire = await _wire_of(store, f"glide:{{{name}}}")
    try:
        old = OldQueue(OldStore(_through(wire)), name)
        await old.functions.queue.open(None)
        yield old
    finally:
        wire.drop("the test has ended")
        await asyncio.sleep(0)


async def _wire_of(store: RunningStore, base: str) -> Wire:
    for endpoint in store.primaries:
        wire = await dial(endpoint)
        reply = await wire.send(pack("EXISTS", base), asyncio.get_running_loop().time() + _SECONDS)
        if not isinstance(reply, Exception):
            return wire
        wire.drop("another primary serves the queue")
    raise LookupError(base)


_READ = {
    b"string": ("GET",), b"hash": ("HGETALL",), b"list": ("LRANGE", 0, -1), b"set": ("SMEMBERS",),
    b"zset": ("ZRANGE", 0, -1, "WITHSCORES"), b"stream": ("XRANGE", "-", "+"),
}  # fmt: skip
_UNORDERED = {b"hash": 2, b"set": 1}


async def snapshot(store: RunningStore, old: OldQueue) -> dict[str, object]:
    """Return the contents of every store key of a queue."""
    found: dict[str, object] = {}
    for key in await store.keys():
        if not key.startswith(f"{old.base}:"):
            continue
        kind = cast("bytes", await old.store.ask("TYPE", key))
        command, *rest = _READ[kind]
        value = await old.store.ask(command, key, *rest)
        if width := _UNORDERED.get(kind):
            flat = iter(cast("list[bytes]", value))
            value = sorted(zip(*[flat] * width, strict=True))
        found[key.removeprefix(old.base)] = (value, await _pending(old, key)) if kind == b"stream" else value
    return found


async def _pending(old: OldQueue, key: str) -> object:
    try:
        rows = cast("list[list[object]]", await old.store.ask("XPENDING", key, "workers", "-", "+", 100_000))
    except ReplyError:
        return None
    return [(row[0], row[1], row[3]) for row in rows]
