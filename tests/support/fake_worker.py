"""A worker reduced to its calls: it claims, settles, renews and sweeps on request, even at wrong times."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest
from typing import Literal, NamedTuple, cast

from glidemq_async.functions.callers import Functions
from glidemq_async.functions.calling import RequestChannel
from glidemq_async.functions.claimed_jobs import ClaimedJob
from glidemq_async.functions.lease import Held
from glidemq_async.functions.outcomes import (
    Completed,
    Delayed,
    Failed,
    FailureCause,
    Outcome,
    RateLimited,
    Released,
    Retention,
    Retry,
    WaitsForChildren,
)
from glidemq_async.functions.settle import SettleReply, SettleRequest, group_kind
from glidemq_async.functions.steps import StepGroup, StoredJournal
from glidemq_async.functions.streaming import ChunkGroup
from tests.support.helpers import AnyQueue
from tests.support.stores import RunningStore

NOTHING = b"\xc0"
LONG_AGO = 10**9
RENEWED_FLAG = "A"
"""The flag of `renewed`, see queue_flags.lua."""


class Lease(NamedTuple):
    """The lease of a claimed job, as its worker knows it."""

    id: str
    entry: str
    fence: int
    name: str
    plain_since: int | str = ""
    key: str | None = None
    claimed_at: int | None = None
    """When the run of a job that is not plain began."""


class SettledRun(NamedTuple):
    """The outcome of a run, for a call that a test makes itself."""

    id: str
    entry: str
    outcome: Outcome
    plain_since: int | str = ""
    key: str | None = None
    """The ordering key of the job if the worker sends it."""
    claimed_at: int | None = None
    """When the run of a job that is not plain began, if the worker sends it."""


def with_runs(request: SettleRequest, runs: Iterable[SettledRun]) -> SettleRequest:
    """Add runs to a call. Return the call."""
    for job_id, entry, outcome, since, key, claimed_at in runs:
        request.settle(job_id, entry, key, outcome, plain_since=int(since) if since else None, claimed_at=claimed_at)
    return request


def in_groups(runs: Iterable[SettledRun]) -> list[SettledRun]:
    """Return runs in the order in which the server settles them: the groups of completed runs first."""
    groups = dict[object, list[SettledRun]]()
    for run in runs:
        kind = group_kind(run.entry, run.key, run.outcome, int(run.plain_since) if run.plain_since else None)
        group = (kind, run.outcome.retention) if isinstance(run.outcome, Completed) and kind is not None else None
        groups.setdefault(group, []).append(run)
    others = groups.pop(None, [])
    return [*chain.from_iterable(groups.values()), *others]


def run_of(lease: Lease, outcome: Outcome) -> SettledRun:
    """Return the outcome of a run as a call sends it."""
    return SettledRun(lease.id, lease.entry, outcome, lease.plain_since, lease.key, lease.claimed_at)


class FakeWorker:
    """A worker whose calls a test makes one by one."""

    def __init__(self, queue: AnyQueue, store: RunningStore) -> None:
        self.base = f"glide:{{{queue.name}}}"
        self.name = f"fake-worker-{uuid.uuid4().hex[:6]}"
        self._store = store
        self._storage = queue.storage
        self._functions = Functions(queue.storage, self.base)
        self.channel = RequestChannel(self.name)
        self._last: SettleRequest | None = None

    async def claim(self, slots: int = 1, lock_ms: int = 30_000) -> list[Lease]:
        """Claim up to this many jobs, as a worker that cannot be woken.

        A call ends early if it has used the time of a call. Then another one claims the rest.
        """
        leases: list[Lease] = []
        while True:
            reply = await self.claim_in_one_call(slots - len(leases), lock_ms)
            leases += leases_of(reply)
            ended_early = reply.due == reply.now
            if not ended_early or len(leases) == slots:
                return leases

    async def claim_in_one_call(self, slots: int, lock_ms: int = 30_000) -> SettleReply:
        """Claim up to this many jobs, fewer if the call uses its time or its bytes before."""
        self._last = self._functions.settle.request(self.channel, self.name, slots, lock_ms, subscribed=False)
        return await self._functions.settle.send(self._last)

    async def claim_directly(self, slots: int = 1, lock_ms: int = 30_000, *leases: Lease) -> SettleReply:
        """Complete these runs, and try to claim up to this many jobs with a direct claim."""
        request = self._functions.settle.request(
            self.channel, self.name, slots, lock_ms, subscribed=False, is_direct=True
        )
        self._last = with_runs(request, [run_of(lease, Completed(NOTHING)) for lease in leases])
        return await self._functions.settle.send(self._last)

    async def repeat(self) -> SettleReply:
        """Send the last claim or settle call again, as a worker that has received no reply."""
        assert self._last is not None
        return await self._functions.settle.send(self._last)

    async def settle(
        self, lease: Lease, code: str = "c", option: str | None = None, payload: bytes = NOTHING
    ) -> str | None:
        """Settle one run. Return the reply code of a refusal, or None."""
        reply = await self._settle([run_of(lease, outcome_of(code, option, payload))])
        return reply.refused.get(0)

    async def settle_as(self, lease: Lease, outcome: Outcome) -> SettleReply:
        """Settle one run with this outcome, and claim nothing."""
        return await self._settle([run_of(lease, outcome)])

    async def settle_all(self, runs: Sequence[tuple[Lease, Outcome]]) -> SettleReply:
        """Settle some of these runs, the first ones, and claim nothing."""
        return await self._settle([run_of(*run) for run in runs])

    async def complete_with_policy(self, lease: Lease, policy: str) -> None:
        """Complete one run with a retention policy in its stored form, which may be malformed."""
        request = self._functions.settle.request(self.channel, self.name, 0, 30_000, subscribed=False)
        request.settle(lease.id, lease.entry, None, Completed(NOTHING))
        args = request.args
        args[-1] = policy
        await self._storage.call("settleAndClaim", self.base, args)

    async def complete(self, *leases: Lease, verify: bool = False, retention: Sequence[Retention] = ()) -> SettleReply:
        """Complete these runs, each with a retention if one is given, and claim nothing.

        A call ends early if it has used the time of a call. Then another one completes the rest, and this method
        returns the reply to the last one. The server settles the groups of completed jobs first.
        """
        runs = in_groups([run_of(lease, Completed(NOTHING, keep)) for lease, keep in zip_longest(leases, retention)])
        reply = await self._settle(runs, verify=verify)
        while reply.settled < len(runs):
            runs = runs[reply.settled :]
            reply = await self._settle(runs, verify=verify)
        return reply

    async def _settle(self, runs: Sequence[SettledRun], *, verify: bool = False) -> SettleReply:
        request = self._functions.settle.request(self.channel, self.name, 0, 30_000, subscribed=False, verify=verify)
        self._last = with_runs(request, runs)
        return await self._functions.settle.send(self._last)

    async def update(self, lease: Lease, kind: Literal["progress", "data", "log"], value: bytes | str) -> str:
        """Write an update from within the run; return the function's reply code."""
        self._functions.caller.consumer = self.name
        return await self._functions.updates.write(lease.id, lease.entry, kind, value)

    async def stream(self, lease: Lease, *chunks: bytes) -> str:
        """Stream chunks from within the run; return the function's reply code."""
        self._functions.caller.consumer = self.name
        group = ChunkGroup(lease.id, lease.entry, 10_000, 2**20, 60_000, chunks)
        return (await self._functions.streaming.append([group]))[0]

    async def record_step(
        self, lease: Lease, identity: str, value: bytes, *, most_steps: int = 10_000, most_bytes: int = 2**24
    ) -> str:
        """Record a step from within the run; return the function's reply code."""
        self._functions.caller.consumer = self.name
        group = StepGroup(lease.id, lease.entry, most_steps, most_bytes, [(identity, value)])
        return (await self._functions.steps.record([group]))[0]

    async def read_steps(self, lease: Lease) -> StoredJournal:
        """Return the journal of the job of a run."""
        return await self._functions.steps.read(lease.id)

    async def renew(self, *leases: Lease, in_transit: bool = False) -> list[str]:
        """Renew leases; return the entries whose lease is lost. in_transit: those of the last call, without a reply."""
        lost, _ = await self._functions.leases.renew(
            self.name,
            NOTHING,
            [Held(lease.id, lease.entry, lease.plain_since) for lease in leases],
            10,
            in_transit=self.channel.number if in_transit else 0,
        )
        return lost

    async def end(self, *leases: Lease) -> int:
        """Report that these runs have ended, and return how many of them were runs of removed jobs."""
        return await self._functions.leases.end_runs(self.name, [lease.entry for lease in leases])

    async def vanish(self, *leases: Lease, for_ms: int = 60_000) -> None:
        """Let the leases age as if this worker had not renewed them for this time."""
        for lease in leases:
            if lease.entry[0] == "p":
                entry = (f"{self.base}:fifo", "workers", self.name, 0, lease.entry[1:])
                await self._store.ask("XCLAIM", *entry, "IDLE", for_ms, "JUSTID")
            else:
                await self._age(lease.entry, for_ms)

    async def _age(self, token: str, for_ms: int) -> None:
        """Change the last renewal of a run outside of `fifo`, see runs.lua. A run that has ended stays as it is."""
        members = cast("list[bytes]", await self._store.ask("ZRANGE", f"{self.base}:runs", 0, -1))
        if not any(member.decode().startswith(f"{token[1:]}{token[0]} ") for member in members):
            return
        seconds, microseconds = cast("list[bytes]", await self._store.ask("TIME"))
        renewed = cast("bytes", await self._store.ask("HGET", f"{self.base}:renewed", token) or b"")
        since = int(seconds) * 1000 + int(microseconds) // 1000 - for_ms
        await self._store.ask("HSET", f"{self.base}:renewed", token, f"{since}{' r' if renewed.endswith(b'r') else ''}")
        flags = cast("bytes", await self._store.ask("HGET", f"{self.base}:meta2", "features")).decode()
        if RENEWED_FLAG not in flags:
            await self._store.ask("HSET", f"{self.base}:meta2", "features", flags + RENEWED_FLAG)

    async def sweep(self, max_stalled: int = 3) -> list[str]:
        """Recover stalled jobs as after a long time without sweeps; return their ids."""
        recovered = await self._sweep_once(max_stalled)
        await self._store.ask("HSET", f"{self.base}:meta2", "settled_since", 1)
        return recovered + await self._sweep_once(max_stalled)

    async def first_sweep(self, gap_ms: int) -> list[str]:
        """Sweep as the first worker after an outage; return the ids of recovered jobs."""
        reply = await self._functions.stalled.sweep(3, 0, gap_ms, resume=False)
        assert reply is not None
        return reply.recovered

    async def consumers(self) -> list[object]:
        """Return the consumers that the server knows."""
        found = await self._store.ask("XINFO", "CONSUMERS", f"{self.base}:fifo", "workers")
        assert isinstance(found, list)
        return cast("list[object]", found)

    async def _sweep_once(self, max_stalled: int) -> list[str]:
        recovered: list[str] = []
        resume = False
        while True:
            reply = await self._functions.stalled.sweep(max_stalled, 0, LONG_AGO, resume=resume)
            assert reply is not None
            recovered += reply.recovered
            if not reply.more:
                return recovered
            resume = True

    async def leave(self) -> None:
        """Sign off; the server releases all pending jobs."""
        await self._functions.stalled.close_worker(self.name)


def leases_of(reply: SettleReply) -> list[Lease]:
    """Return the leases of the jobs that a reply claims."""
    at = reply.claimed_at
    return [
        Lease(job.id, job.entry, job.fence, job.name, at, key_of(job))
        if job.is_plain
        else Lease(job.id, job.entry, job.fence, job.name, "", key_of(job), at)
        for job in reply.jobs
    ]


def key_of(job: ClaimedJob) -> str | None:
    """Return the ordering key of a claimed job, None if it has none."""
    route = job.history.route if job.history else None
    return route.split(b" ", 5)[5].decode() if route and route.startswith(b"k ") else None


def outcome_of(code: str, option: str | None = None, payload: bytes = NOTHING) -> Outcome:
    """Return the outcome of this code. Without an option, its values are typical ones."""
    match code:
        case "c":
            return build_outcome(code, payload, retention=_retention(option or ""))
        case "f":
            policy, cause, reason = (option or ";retries_exhausted;broken").split(";")
            return build_outcome(code, payload, cause=cause, reason=reason, retention=_retention(policy))
        case "r":
            ms, _, reason = (option or "50 broken").partition(" ")
            return build_outcome(code, payload, delay_ms=int(ms), reason=reason)
        case _:
            return build_outcome(code, payload, delay_ms=int(option or 50))


def build_outcome(
    code: str,
    payload: bytes,
    *,
    delay_ms: int = 0,
    cause: str = "",
    reason: str = "",
    retention: Retention | None = None,
) -> Outcome:
    """Return the outcome of this code with the values that its kind has."""
    delay = delay_ms / 1000
    match code:
        case "c":
            return Completed(payload, retention)
        case "f":
            return Failed(payload, cast("FailureCause", cause), reason, retention)
        case "r":
            return Retry(payload, delay, reason)
        case "d":
            return Delayed(delay, reason)
        case "l":
            return RateLimited(delay, reason)
        case "w":
            return WaitsForChildren()
        case _:
            return Released()


def build_retention(count: int, age: int, ttl: int | None) -> Retention:
    """Return a retention. A count or an age of -1 means no limit."""
    return Retention(None if count == -1 else count, None if age == -1 else age, ttl)


def _retention(policy: str) -> Retention | None:
    if not policy:
        return None
    kept, _, ttl = policy.partition(" t")
    count, age = (int(part) for part in (kept or "-1 -1").split())
    return build_retention(count, age, int(ttl) if ttl else None)
