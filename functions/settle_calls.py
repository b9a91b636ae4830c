"""The caller of settle.lua: settles the outcomes of runs and claims jobs, in one call.

The wire form of outcomes and of claimed jobs exists only here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

from glidemq_async.functions.calling import Arg, Caller, Lane, text
from glidemq_async.functions.outcomes import Completed, Delayed, Failed, Outcome, Released, Retention, Retry

_Row: TypeAlias = Sequence[bytes | None]
_Head: TypeAlias = tuple[bytes, bytes | None, bytes | None, bytes, bytes, bytes]

_SHORT_ROW = 6
"""Fields of a job without a key and without a history. A keyed job that never ran also has its route."""
_KEYED_ROW = 7


class ClaimedJob(NamedTuple):
    """One job of a claim. The fields after `opts` are set for keyed jobs and for jobs with a history."""

    id: str
    entry: str
    """The fencing token of the run."""
    fence: int
    name: str
    data: bytes
    opts: bytes
    route: bytes | None = None
    added: bytes | None = None
    failures: int = 0
    stalls: int = 0
    progress: bytes | None = None
    origin: bytes | None = None
    """The origin of a dead letter."""


class SettledRun(NamedTuple):
    """A run to settle. `key` is the ordering key of the job, which saves the server a lookup."""

    id: str
    entry: str
    key: str | None
    outcome: Outcome


@dataclass(slots=True)
class SettleRequest:
    """One `settleAndClaim` call. It is kept unchanged, so that a repeated call has the same request number."""

    lane: Lane
    number: int
    args: list[Arg]

    @property
    def incarnation(self) -> str:
        """The incarnation of the queue that the call is meant for."""
        return cast("str", self.args[-1])


class SettleReply(NamedTuple):
    """Reply of `settleAndClaim`. `due` is the instant (server ms) at which to claim again, 0: after a wake-up.

    `posted`: the call wrote to the outbox. `past`: microseconds beyond `now`.
    """

    now: int
    refused: dict[int, str]
    jobs: list[ClaimedJob]
    due: int
    listeners: int
    posted: bool
    past: int
    is_broken: bool = False
    """The server does not know the channel's previous call: a failover lost it, and maybe its claims."""

    @property
    def wait(self) -> float:
        """Seconds from the reply until `due`."""
        return (self.due - self.now) / 1000 - self.past / 1e6


class SettleCalls(Caller):
    """The settle and claim call of one queue."""

    incarnation: str

    def settle_request(
        self,
        lane: Lane,
        consumer: str,
        slots: int,
        lock_ms: int,
        settled: Sequence[SettledRun] = (),
        *,
        subscribed: bool,
        idle: bool = False,
        echo: bool = False,
        verify: bool = False,
        ran_ms: tuple[int, int] = (0, 0),
    ) -> SettleRequest:
        """Prepare a settleAndClaim call.

        `subscribed`: the server may count on waking this worker. `idle`: the server may have it in its list of idle
        workers. `echo` requests a message on the worker's own channel. `verify` requests a check that the worker owns
        the entries that it settles. ran_ms: total duration of the runs that this call completes, and of the runs that
        it fails.
        """
        flags = ("e" if echo else "") + ("i" if idle else "") + ("" if subscribed else "u") + ("v" if verify else "")
        number = lane.next()
        ran = f"{ran_ms[0]} {ran_ms[1]}"
        args: list[Arg] = [lane.name, number, consumer, slots, lock_ms, flags, ran, len(settled)]
        for job_id, entry, key, outcome in settled:
            verb, payload, option = _encoded(outcome)
            args += (verb, job_id, entry if key is None else f"{entry} {key}", payload, option)
        args.append(self.incarnation)
        return SettleRequest(lane, number, args)

    def readdress(self, request: SettleRequest) -> None:
        """Change the incarnation of a call that was refused as UNDECLARED to the one that is open now."""
        request.args[-1] = self.incarnation

    async def settle_and_claim(self, request: SettleRequest) -> SettleReply:
        """Make or repeat a settleAndClaim call."""
        reply = await self._storage.call("settleAndClaim", self._base, request.args)
        now, refused, rows, due, listeners, posted, past = cast(
            "tuple[int, list[object], list[_Row], int, int, int, int]", reply
        )
        words = {cast("int", refused[i]) - 1: text(refused[i + 1]) for i in range(0, len(refused), 2)}
        return SettleReply(now, words, _claimed(rows), due, listeners, posted & 1 == 1, past, posted & 2 == 2)


def _encoded(outcome: Outcome) -> tuple[str, bytes, str]:
    """Return the verb, the payload and the option of an outcome, as settle.lua reads them."""
    # The most frequent outcome comes first, because this runs once per job.
    if isinstance(outcome, Completed):
        return "c", outcome.result, _policy(outcome.retention)
    if isinstance(outcome, Failed):
        return "f", outcome.error, f"{_policy(outcome.retention)};{outcome.cause};{outcome.reason}"
    if isinstance(outcome, Released):
        return "b", b"", ""
    delay = str(round(outcome.delay * 1000))
    if isinstance(outcome, Retry):
        return "r", outcome.error, f"{delay} {outcome.reason}"
    return "d" if isinstance(outcome, Delayed) else "l", outcome.reason.encode(), delay


def _policy(retention: Retention | None) -> str:
    if retention is None:
        return ""
    count, age = retention.count, retention.age_ms
    if retention.ttl_ms is None:
        return f"{-1 if count is None else count} {-1 if age is None else age}"
    kept = "" if count is None and age is None else f"{-1 if count is None else count} {-1 if age is None else age}"
    return f"{kept} t{retention.ttl_ms}"


def _claimed(rows: Iterable[_Row]) -> list[ClaimedJob]:
    return [_claimed_job(row) for row in rows]


def _claimed_job(row: _Row) -> ClaimedJob:
    name, data, opts, fence, job_id, entry = cast("_Head", row[:_SHORT_ROW])
    head = (job_id.decode(), entry.decode(), int(fence), name.decode(errors="replace"), data or b"", opts or b"")
    if len(row) == _SHORT_ROW:
        return ClaimedJob(*head)
    if len(row) == _KEYED_ROW:
        return ClaimedJob(*head, row[6])
    failures, stalls, added, progress, route, origin = row[6:]
    return ClaimedJob(*head, route, added, int(failures or 0), int(stalls or 0), progress, origin)
