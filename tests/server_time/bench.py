"""The server's processor time of each call of one function, on a queue that a case fills."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgpack

from glidemq_async.functions.add import AddRequest
from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import Arg, RequestChannel
from glidemq_async.functions.lease import Held
from glidemq_async.storage import Endpoint, open_storage
from glidemq_async.storage.redis.connections import dial
from glidemq_async.storage.redis.library import pack
from glidemq_async.storage.redis.wire import Wire
from tests.support.fake_worker import SettledRun, outcome_of, with_runs
from tests.support.recording_storage import Relay
from tests.support.stores import RunningStore

MIB: Final = 1024 * 1024
NIL: Final = b"\xc0"
AT_ONCE: Final = 500


class Bench:
    """One queue on a test server. The server's time of each call of `function` through it is measured."""

    def __init__(self, relay: Relay, wire: Wire, function: str, scale: int) -> None:
        self.relay = relay
        self.name = f"bench-{uuid.uuid4().hex[:8]}"
        self.base = f"glide:{{{self.name}}}"
        self.functions = Functions(relay, self.base)
        self.many = 1_000 * scale
        """The size of each structure: jobs of a state, entries of a list and so on. The nightly run uses more."""
        self.spent: list[float] = []
        """The processor time of each measured call, in milliseconds."""
        self._wire = wire
        self._function = function
        self._before = 0.0
        self._channel = RequestChannel("bench")
        relay.before_call, relay.after_call = self._begin, self._end

    def other(self, suffix: str) -> Functions:
        """Return the callers of another queue on the same server."""
        return Functions(self.relay, f"glide:{{{self.name}-{suffix}}}")

    async def command(self, *words: Arg) -> Any:
        """Run a command on the server."""
        reply = await self._wire.send(pack(*words), asyncio.get_running_loop().time() + 60)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def fill(self, kind: str, key: str, values: Sequence[str | bytes | int]) -> None:
        """Write many members of a structure in a few commands."""
        for start in range(0, len(values), 10_000):
            await self.command(kind, f"{self.base}:{key}", *values[start : start + 10_000])

    async def add(
        self, count: int = 1, data: bytes = NIL, opts: bytes = b"", ids: Sequence[str] = (), **extra: object
    ) -> list[str]:
        """Add jobs with these options of the store; return their ids."""
        packed = msgpack.packb(extra) if extra else b""
        own = ids or [""] * count
        found: list[str] = []
        step = max(1, min(AT_ONCE, 2 * MIB // len(data)))
        for start in range(0, len(own), step):
            jobs = [AddRequest(job_id, "n", data, opts, packed) for job_id in own[start : start + step]]
            found += (await self.functions.add.jobs(jobs)).ids
        return found

    async def add_keyed(self, count: int, keys: int, **extra: object) -> None:
        """Add jobs that are spread over this many keys."""
        for start in range(0, count, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, count))
            packed = [msgpack.packb({**extra, "key": f"k{number % keys}"}) for number in numbers]
            await self.functions.add.jobs([AddRequest("", "n", NIL, b"", one) for one in packed])

    async def claim(self, most: int, consumer: str = "bench", lock_ms: int = 30_000) -> list[Held]:
        """Claim up to this many jobs; return their leases."""
        held: list[Held] = []
        while len(held) < most:
            request = self.functions.settle.request(
                self._channel, consumer, min(AT_ONCE, most - len(held)), lock_ms, subscribed=False
            )
            reply = await self.functions.settle.send(request)
            if not reply.jobs:
                break
            held += [Held(job.id, job.entry, reply.claimed_at if job.is_plain else "") for job in reply.jobs]
        return held

    async def settle(self, held: Sequence[Held], code: str, option: str, payload: bytes = NIL) -> None:
        """Settle runs of the consumer `bench`."""
        # A call settles the groups of plain jobs before its other runs, and reports how many runs it has settled.
        held = sorted(held, key=lambda run: (not run.plain_since, run.plain_since))
        step = max(1, min(AT_ONCE, 2 * MIB // len(payload)))
        outcome, settled = outcome_of(code, option, payload), 0
        while settled < len(held):
            some = held[settled : settled + step]
            request = self.functions.settle.request(self._channel, "bench", 0, 30_000, subscribed=False)
            with_runs(request, [SettledRun(run.id, run.entry, outcome, run.plain_since) for run in some])
            reply = await self.functions.settle.send(request)
            assert not reply.refused
            settled += reply.settled

    async def end(self, most: int, code: str = "c", payload: bytes = NIL) -> list[str]:
        """Run jobs to their end and keep them all; return their ids."""
        held = await self.claim(most)
        await self.settle(held, code, "-1 -1" if code == "c" else "-1 -1;retries_exhausted;broken", payload)
        return [run.id for run in held]

    async def crowd(self, number: int = 1_000) -> None:
        """Register this many dead workers as idle."""
        await self.fill("ZADD", "idle", [word for n in range(number) for word in ("1", f"dead{n}")])

    async def slowness(self) -> float:
        """Return how many times slower the server is now than on the quiet reference machine; at least 1.

        Other programs on the host slow the server's memory accesses much more than a loop of additions, so the same
        mix of texts, tables and commands that functions consist of is measured in the server itself.
        """
        before = await self._seconds()
        await self.command("EVAL", _SPEED, 1, f"{self.base}:speed")
        return max(1.0, (await self._seconds() - before) / SPEED_SECONDS)

    async def _seconds(self) -> float:
        text = cast("bytes", await self.command("INFO", "cpu")).decode()
        return sum(map(float, re.findall(r"used_cpu_(?:user|sys)_main_thread:([\d.]+)", text)))

    async def _begin(self, function: str, args: Sequence[Arg]) -> None:
        # The functions of a transaction begin together.
        if function == self._function or (self._function == "finishClaim" and "d" in str(args[5:6])):
            self._before = await self._seconds()

    async def _end(self, function: str, _args: Sequence[Arg], _reply: object) -> None:
        if function == self._function:
            self.spent.append((await self._seconds() - self._before) * 1000)


_SPEED: Final = """
local kept = {}
for i = 1, 8000 do
  local text = string.rep('x', 64) .. i
  kept[i % 1000] = {text, i}
  redis.call('HSET', KEYS[1], text, text)
end
redis.call('UNLINK', KEYS[1])
"""
SPEED_SECONDS: Final = 0.013
"""The processor time of this script on the reference machine."""

Work: TypeAlias = Callable[[Bench], Awaitable[None]]


class Case(NamedTuple):
    """A function, and a caller of it with the largest input that it accepts."""

    function: str
    variant: str
    work: Work


CASES: Final[list[Case]] = []


def largest(function: str, variant: str = "") -> Callable[[Work], Work]:
    """Register the coroutine function below as a case of a server function."""

    def register(work: Work) -> Work:
        CASES.append(Case(function, variant, work))
        return work

    return register


@asynccontextmanager
async def bench(store: RunningStore, function: str, scale: int) -> AsyncGenerator[Bench]:
    """Yield a new queue and a meter. The server is empty afterwards."""
    endpoint: Endpoint = store.primaries[0]
    wire = await dial(endpoint)
    try:
        async with open_storage(store.url) as storage:
            made = Bench(Relay(storage), wire, function, scale)
            await made.functions.queue.open(None)
            yield made
            await made.command("FLUSHALL", "ASYNC")
    finally:
        wire.drop("done")
        await asyncio.sleep(0)
