"""Calls of `settle.lua`: settles the outcomes of runs and claims jobs, in one call.

Only this module knows how outcomes are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast

from glidemq_async.functions.calling import Arg, Caller, Calls, RequestChannel, TransactionStore, text
from glidemq_async.functions.claimed_jobs import ClaimedJob, EntriesRead, EntryRow, claimed_jobs
from glidemq_async.functions.loader import function_name
from glidemq_async.functions.outcomes import (
    Completed,
    Delayed,
    Failed,
    Outcome,
    RateLimited,
    Released,
    Retention,
    Retry,
    Suspended,
    WaitsForChildren,
)

_ARGUMENTS_OF_A_RUN = 5
_CHANNEL, _CONSUMER, _SLOTS, _FLAGS, _RAN = 0, 2, 3, 5, 6
"""Positions in the arguments of a call."""
_SHORT_FLAGS = frozenset({"", "p", "pg"})
"""The flags of calls that may have the short form."""
_UNKEYED, _KEYED = "l", "k"
"""The prefixes of the tokens of jobs that did not wait in `fifo`."""
_SEPARATOR = "\x1f"
_DIRECT = "d"
"""The flag of a call whose worker claims directly."""
_DIRECTLY = 1
"""The reply of `settleAndClaim` to a worker that claims directly."""
_GROUP = "workers"
_SETTLE, _FINISH = function_name("settleAndClaim"), function_name("finishClaim")


MOST_READ: Final = 256
"""The maximum number of jobs of a direct claim, see direct_claim.lua."""


class _Group:
    """Completed runs with the same retention policy, of plain jobs that began at the same time or of other jobs."""

    __slots__ = ("claimed_at", "entries", "ids", "keys", "results", "size")

    def __init__(self, claimed_at: int | None = None) -> None:
        self.claimed_at = claimed_at
        """When all runs of a group of other jobs began (server ms), None if they began at different times."""
        self.entries: list[Arg] = []
        """The entries of plain jobs without their prefix. Of other jobs, the members of `runs`, see runs.lua."""
        self.ids: list[Arg] = []
        """The ids of the jobs that are not plain."""
        self.keys: list[Arg] = []
        """The ordering keys of keyed jobs."""
        self.results: list[bytes] = []
        self.size = 0
        """The number of runs."""

    def args(self, started: int | str, policy: str) -> list[Arg]:
        """Return the arguments of the group. Equal results, usually None, are sent once."""
        results = self.results
        first = results[0]
        # `count` compares in C. A generator would cost a call for each run.
        if results.count(first) == len(results):
            results = [first]
        if self.claimed_at is not None:
            started = f"{started}{self.claimed_at}"
        return [started, policy, self.size, *self.entries, *self.ids, *self.keys, len(results), *results]


# The claim loop repeats a call until the server replies. A repetition must have the same number and the same contents:
# the server returns the stored reply of that number, so an outcome that was added in between would be taken as settled
# without having been sent. Therefore the request is a value that is built once. Outcomes that arrive during the call go
# into the next one.
@dataclass(slots=True)
class SettleRequest:
    """One `settleAndClaim` call. It is kept unchanged, so that a repeated call has the same request number."""

    channel: RequestChannel
    number: int
    head: tuple[Arg, ...]
    incarnation: str
    """The incarnation of the queue that the call is meant for."""
    is_direct: bool = False
    """True if the worker tries to claim plain jobs directly."""
    _settled: list[Arg] = field(default_factory=list)
    _groups: dict[tuple[int | str, str], _Group] = field(default_factory=dict)
    """By the start of plain runs, or the prefix of the tokens of other runs, and by the retention policy."""
    _group_of: list[_Group | None] = field(default_factory=list)
    """The group of each run in the order of `settle`, None for a run that is sent by itself."""

    def settle(
        self,
        job_id: str,
        entry: str,
        key: str | None,
        outcome: Outcome,
        *,
        plain_since: int | None = None,
        claimed_at: int | None = None,
    ) -> None:
        """Add the outcome of a run.

        `key` is the ordering key of the job, which saves the server a lookup. `plain_since` is the time (server ms) at
        which the run of a plain job began, None for any other job. `claimed_at` is the time (server ms) at which the
        run of any other job began. None means unknown, and costs the server a lookup.
        """
        kind = group_kind(entry, key, outcome, plain_since)
        if kind is not None and isinstance(outcome, Completed):
            at = kind, "" if outcome.retention is None else _policy(outcome.retention)
            group = self._groups.get(at) or self._groups.setdefault(at, _Group(claimed_at))
            if plain_since is not None:
                group.entries.append(entry[1:])
            else:
                group.ids.append(job_id)
                if claimed_at != group.claimed_at:
                    group.claimed_at = None
                if kind == _KEYED:
                    group.entries.append(f"{entry[1:]}k {job_id}{_SEPARATOR}{key}")
                    group.keys.append(key or "")
                else:
                    group.entries.append(f"{entry[1:]}l {job_id}")
            group.results.append(outcome.result)
            group.size += 1
            self._group_of.append(group)
            return
        self._group_of.append(None)
        rest = key if plain_since is None else plain_since
        token = entry if rest is None else f"{entry} {rest}"
        code, payload, option = _encoded(outcome)
        self._settled += (code, job_id, token, payload, option)

    def settle_all(self, entries: list[Arg], outcome: Completed, plain_since: int) -> None:
        """Add runs of plain jobs with the same outcome and the same start. `entries` are their tokens without a "p"."""
        group = _Group()
        group.entries = entries
        group.results = [outcome.result]
        group.size = len(entries)
        self._groups[plain_since, "" if outcome.retention is None else _policy(outcome.retention)] = group
        self._group_of = [group] * len(entries)

    @property
    def is_short(self) -> bool:
        """True if the call has the short form: it settles one plain job and claims, and has no unusual flag."""
        if len(self._groups) != 1 or len(self._group_of) != 1 or self.is_direct:
            return False
        [(started, policy)] = self._groups
        head = self.head
        return (
            isinstance(started, int)
            and not policy
            and head[_FLAGS] in _SHORT_FLAGS
            and head[_SLOTS] != 0
            and head[_CHANNEL] == head[_CONSUMER]
            and cast("str", head[_RAN]).endswith(" 0")
        )

    @property
    def args(self) -> list[Arg]:
        """The arguments of the call."""
        if self.is_short:
            [(started, _)], [group] = self._groups, self._groups.values()
            channel, number, _, slots, lock, flags, ran = self.head
            caller = f"{cast('int', slots)} {cast('int', lock)} {cast('str', flags)} {self.incarnation}"
            return [channel, number, caller, cast("str", ran)[:-2], started, group.entries[0], group.results[0]]
        args: list[Arg] = [*self.head, self.incarnation, len(self._groups)]
        for (started, policy), group in self._groups.items():
            args += group.args(started, policy)
        args.append(len(self._settled) // _ARGUMENTS_OF_A_RUN)
        args += self._settled
        return args

    def by_run(self, statuses: dict[int, str]) -> dict[int, str]:
        """Return statuses by the order of `settle`, from statuses by the position in the arguments."""
        if not statuses:
            return statuses
        starts = dict[int | None, int]()
        position = 0
        for group in self._groups.values():
            starts[id(group)] = position
            position += group.size
        starts[None] = position
        found = dict[int, str]()
        for index, group_of_run in enumerate(self._group_of):
            which = None if group_of_run is None else id(group_of_run)
            if (status := statuses.get(starts[which])) is not None:
                found[index] = status
            starts[which] += 1
        return found


class SettleReply(NamedTuple):
    """Reply of `settleAndClaim`. `due` is the instant (server ms) at which to claim again, 0: after a wake-up.

    `posted`: the call wrote to the outbox. `past`: microseconds beyond `now`. `settled`: the number of runs that the
    call has settled, the first ones of the request. The other runs keep their leases and belong to the next call.
    """

    now: int
    refused: dict[int, str]
    jobs: Sequence[ClaimedJob]
    due: int
    listeners: int
    posted: bool
    past: int
    settled: int
    is_broken: bool = False
    """The server does not know the channel's previous call: a failover lost it, and maybe its claims."""
    has_notified: bool = False
    """The call has sent a result to a client that waits for it."""
    is_direct: bool = False
    """The worker has claimed directly."""
    is_refused: bool = False
    """The server has refused a direct claim, and has claimed itself."""
    claimed_at: int = 0
    """The time (server ms) of the claim. It is earlier than `now` in the reply to a repeated call."""

    @property
    def wait(self) -> float:
        """Seconds from the reply until `due`."""
        # `now` is a whole millisecond, rounded down. Without the microseconds beyond it, the timer would be up to a
        # millisecond late.
        return (self.due - self.now) / 1000 - self.past / 1e6


class SettleCalls(Calls):
    """The settle and claim call of one queue."""

    __slots__ = ("_has_notified",)

    def __init__(self, caller: Caller) -> None:
        super().__init__(caller)
        self._has_notified = False
        """True if the last call has sent a result to a client, so the next one may do the same."""

    def request(
        self,
        channel: RequestChannel,
        consumer: str,
        slots: int,
        lock_ms: int,
        *,
        subscribed: bool,
        idle: bool = False,
        echo: bool = False,
        verify: bool = False,
        accepts_pushes: bool = False,
        has_push: bool = False,
        is_direct: bool = False,
        ran_ms: tuple[int, int] = (0, 0),
    ) -> SettleRequest:
        """Prepare a settleAndClaim call. `SettleRequest.settle` adds the runs to settle.

        `subscribed`: the server may count on waking this worker. `idle`: the server may have it in its list of idle
        workers. `echo` requests a message on the worker's own channel. `verify` requests a check that the worker owns
        the entries that it settles. `accepts_pushes`: the server may claim jobs for this worker after the call and push
        them; `has_push`: the worker has received the jobs that were pushed after its previous call. `is_direct`: the
        worker tries to claim plain jobs directly, for which its storage must be a `TransactionStore`. `ran_ms`: the
        total duration of the runs that this call completes, and of the runs that it fails.
        """
        flags = ("e" if echo else "") + ("i" if idle else "") + ("" if subscribed else "u") + ("v" if verify else "")
        flags += ("p" if accepts_pushes else "") + ("g" if has_push else "")
        number, ran = channel.next(), f"{ran_ms[0]} {ran_ms[1]}"
        head = (channel.name, number, consumer, slots, lock_ms, flags, ran)
        return SettleRequest(channel, number, head, self._caller.incarnation, is_direct)

    def readdress(self, request: SettleRequest) -> None:
        """Change the incarnation of a call that was refused as UNDECLARED to the one that is open now."""
        # The number stays the same. A call that was refused as UNDECLARED has stored no number, so this is still its
        # first execution.
        request.incarnation = self._caller.incarnation

    async def send(self, request: SettleRequest) -> SettleReply:
        """Make or repeat a settleAndClaim call."""
        caller = self._caller
        args = request.args
        if request.is_direct:
            # One attempt. Every other one is an ordinary call with the same number, to which the server returns the
            # stored reply if the transaction was executed.
            request.is_direct = False
            reply = await self._send_directly(args, request)
            if reply is not None:
                return reply
        # Not through `once`, which takes a new number for each call. The number belongs to the request, because the
        # claim loop repeats it over many calls of this method, during an outage for hours.
        first = self._has_notified
        reply = _reply(request, await caller.storage.call("settleAndClaim", caller.base, args, messages_first=first))
        self._has_notified = reply.has_notified
        return reply

    async def _send_directly(self, args: list[Arg], request: SettleRequest) -> SettleReply | None:
        """Make a call whose worker claims directly. Return None if it has to be repeated."""
        caller = self._caller
        base, consumer, slots = caller.base, args[_CONSUMER], cast("int", args[_SLOTS])
        most = min(slots, MOST_READ)
        flagged = [*args]
        flagged[_FLAGS] = cast("str", args[_FLAGS]) + _DIRECT
        replies = await cast("TransactionStore", caller.storage).transact(
            base,
            (
                ("FCALL", _SETTLE, 1, base, *flagged),
                (
                    "XREADGROUP",
                    "GROUP",
                    _GROUP,
                    consumer,
                    "COUNT",
                    most,
                    "STREAMS",
                    f"{base}:fifo",
                    f"{base}:direct",
                    ">",
                    ">",
                ),
                ("FCALL", _FINISH, 1, base, most),
            ),
        )
        if replies is None:
            return None
        settled, read, finished = replies
        if settled != _DIRECTLY:
            return None if isinstance(settled, Exception) else _reply(request, settled)._replace(is_refused=True)
        if isinstance(finished, Exception):
            return None
        streams = cast("list[tuple[bytes, list[EntryRow]]] | None", None if isinstance(read, Exception) else read)
        rows = streams[0][1] if streams else []
        return _reply(request, finished)._replace(jobs=EntriesRead(rows), is_direct=True)


def _reply(request: SettleRequest, reply: object) -> SettleReply:
    if isinstance(reply, int):
        now, past = divmod(abs(reply), 1000)
        return SettleReply(now, {}, claimed_jobs(b""), 0, -1, False, past, 1, has_notified=reply < 0, claimed_at=now)
    now, refused, jobs, due, listeners, posted, past, settled, claimed_at = cast(
        "tuple[int, list[object] | bytes, list[Any] | bytes, int, int, int, int, int, int]", reply
    )
    statuses = {cast("int", refused[i]) - 1: text(refused[i + 1]) for i in range(0, len(refused), 2)}
    return SettleReply(
        *(now, request.by_run(statuses), claimed_jobs(jobs), due, listeners, posted & 1 == 1, past, settled),
        is_broken=posted & 2 == 2,
        has_notified=posted & 4 == 4,
        claimed_at=claimed_at,
    )


def group_kind(entry: str, key: str | None, outcome: Outcome, plain_since: int | None) -> int | str | None:
    """Return in which groups a call sends the outcome of a run, None if it sends the outcome by itself.

    A group has completed runs only. Its kind is `plain_since` for plain jobs, and otherwise the prefix of the tokens.
    """
    if not isinstance(outcome, Completed):
        return None
    if plain_since is not None:
        return plain_since
    prefix = entry[0]
    # A job that ran from `fifo` with a record is sent by itself, and so is a keyed job whose key is not known.
    return prefix if prefix == _UNKEYED or (prefix == _KEYED and key is not None) else None


def _encoded(
    outcome: Completed | Failed | Retry | Delayed | Suspended | RateLimited | WaitsForChildren | Released,
) -> tuple[str, bytes, str]:
    """Return the code, the payload and the option of an outcome, as settle.lua reads them."""
    # The only place that knows the codes of settle.lua. Above this module an outcome is a type, so a misspelled one is
    # an error of the type checker and not of the server.
    if isinstance(outcome, Completed):
        return "c", outcome.result, "" if outcome.retention is None else _policy(outcome.retention)
    if isinstance(outcome, Failed):
        policy = "" if outcome.retention is None else _policy(outcome.retention)
        # The reason comes last, because it is free text and may contain the separator.
        return "f", outcome.error, f"{policy};{outcome.cause};{outcome.reason}"
    if isinstance(outcome, Released):
        return "b", b"", ""
    if isinstance(outcome, Suspended):
        timeout = -1 if outcome.timeout_ms is None else outcome.timeout_ms
        unused = "r" if outcome.gives_back else ""
        kept = "k" if outcome.is_warm else ""
        ends = "" if outcome.known_ends is None else f"c{outcome.known_ends}"
        return "s", outcome.waits.encode(), _with_step(f"{timeout}{unused}{kept}{ends}", outcome.step)
    if isinstance(outcome, WaitsForChildren):
        return "w", b"", ""
    delay = str(round(outcome.delay * 1000))
    if isinstance(outcome, Retry):
        return "r", outcome.error, f"{delay} {outcome.reason}"
    if isinstance(outcome, Delayed):
        when = delay if outcome.due_ms is None else f"@{outcome.due_ms}"
        return "d", outcome.reason.encode(), _with_step(when, outcome.step)
    return "l", outcome.reason.encode(), delay


def _with_step(option: str, step: str) -> str:
    return f"{option} {step}" if step else option


def _policy(retention: Retention) -> str:
    count, age = retention.count, retention.age_ms
    kept = f"{-1 if count is None else count} {-1 if age is None else age}"
    if retention.ttl_ms is None:
        return kept
    return f"{'' if count is None and age is None else kept} t{retention.ttl_ms}"
